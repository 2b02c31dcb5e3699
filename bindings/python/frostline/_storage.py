"""What Frostline asks of PyTorch's storages, across the versions that name things differently.

A storage is named by the address of its StorageImpl. That is only safe while a weak reference keeps
the address from being used again, so a key never travels without one.
"""

import torch


def storage_of(tensor):
    """The untyped storage of a tensor. Raises what torch raises for tensors that have none."""
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    return tensor.storage()._untyped() if hasattr(torch, "_UntypedStorage") else (
        tensor.storage().untyped())


class WeakStorage:
    """A weak reference to a storage; ``key`` is unique while this object lives."""

    __slots__ = ("key", "_storage_class")

    def __init__(self, storage):
        self._storage_class = type(storage)
        self.key = storage._weak_ref()

    def expired(self):
        """Whether the storage's memory is gone."""
        return self._storage_class._expired(self.key)

    def storage(self):
        """The storage, or None if its memory is gone."""
        return self._storage_class._new_with_weak_ptr(self.key)

    def __del__(self):
        self._storage_class._free_weak_ref(self.key)


def key_of(storage):
    """The key that WeakStorage(storage) has."""
    return storage._cdata


_count_references = getattr(torch._C, "_storage_Use_Count", None)


def _references_of_lone_tensor():
    # What is counted for a storage with a single tensor differs between versions: the Python object
    # of the storage may count, too. Hence the same here as in shared(): that object is alive.
    lone = torch.empty(1)
    storage = storage_of(lone)
    return _count_references(key_of(storage))


_LONE = _references_of_lone_tensor() if _count_references else None


def can_count_users():
    """Whether this torch tells how many tensors share a storage."""
    return _count_references is not None


def shared(storage):
    """Whether more than one tensor refers to a storage that the caller got from storage_of()."""
    return _count_references(key_of(storage)) > _LONE


def tensor_over(storage, dtype, size, stride, offset):
    """A tensor of the given geometry (offset and strides in elements) on a storage."""
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)
