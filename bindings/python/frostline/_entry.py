"""One saved storage and the handles on it.

An entry starts out as the tensor's own memory, adopted without a copy. When its bytes have moved to
a lower tier, Frostline gives the memory back: the alias goes, and with it PyTorch's allocation.
"""

import torch

from ._core import NoSpace
from ._storage import (WeakStorage, can_count_users, key_of, shared, storage_of, tensor_over)

# How many settle rounds a storage that others still refer to stays charged to the budget. Moving it
# would free nothing while they hold it, so it is left to them.
_PATIENCE = 256


def is_movable(tensor, min_bytes):
    """Whether a tensor is plain dense CPU memory of at least min_bytes, so that bytes are all."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return False
    if tensor.device.type != "cpu" or tensor.is_quantized or tensor.is_inference():
        return False
    if tensor.is_conj() or tensor.is_neg():
        return False
    try:
        storage = storage_of(tensor)
        return storage.nbytes() >= min_bytes and storage.data_ptr() != 0
    except (RuntimeError, NotImplementedError):
        return False  # wrapped by functorch, or without storage


class _Alias:
    """The adopted memory. Called by Frostline, on any thread, when the bytes have left it."""

    __slots__ = ("tensor", "version", "modified")

    def __init__(self, tensor):
        self.tensor = tensor.detach()
        self.version = tensor._version
        self.modified = False

    def check(self):
        # The bytes may have been copied at any time up to now.
        if self.tensor is not None and self.tensor._version != self.version:
            self.modified = True
        return not self.modified

    def __call__(self):
        self.check()
        self.tensor = None


class Entry:
    """A storage in Frostline's care, as long as a handle refers to it.

    Raises frostline.Error when no tier takes it.
    """

    __slots__ = ("key", "held", "_manager", "_id", "_alias", "_weak", "_nbytes", "_patience",
                 "_version", "__weakref__")

    def __init__(self, manager, tensor):
        storage = storage_of(tensor)
        self._id = None
        self._manager = manager
        self._weak = WeakStorage(storage)
        self.key = self._weak.key
        self._nbytes = storage.nbytes()
        self._alias = _Alias(tensor)
        self._version = tensor._version
        self._patience = _PATIENCE
        self.held = can_count_users()
        self._id = manager.adopt(storage.data_ptr(), self._nbytes, self._alias, self.held)

    def __del__(self):
        if self._id is not None:
            self._manager.drop(self._id)

    @staticmethod
    def key_of(tensor):
        return key_of(storage_of(tensor))

    def holds(self, tensor):
        """Whether what is stored is what the tensor's storage holds now."""
        return self._version == tensor._version

    def settle_if_idle(self, manager):
        """True when the entry need not be asked again."""
        alias = self._alias.tensor
        if alias is None or self._id is None:
            return True
        self._patience -= 1
        # Here `alias` is only one more name for the tensor, not one more tensor.
        if shared(self.key):
            if self._patience > 0:
                return False
            self._leave_to_others(manager)
            return True
        manager.settle(self._id)
        return True

    def _leave_to_others(self, manager):
        keep = self._alias.tensor
        manager.drop(self._id)  # calls the alias, which forgets the tensor
        self._id = None
        self._alias.tensor = keep

    def storage(self, manager):
        """The storage with its bytes in memory; raises what backward without hooks would raise."""
        if not self._alias.check():
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation after it was saved (found by frostline.offload)")
        if self._id is None:
            return storage_of(self._alias.tensor)
        try:
            pinned = manager.pin(self._id)
        except NoSpace:
            # Other pins fill the budget, or it is smaller than this: straight to new memory.
            flat = torch.empty(self._nbytes, dtype=torch.uint8)
            manager.get_into(self._id, flat.data_ptr(), self._nbytes)
            return storage_of(flat)
        original = self._alias.tensor
        if original is not None:
            return storage_of(original)
        # The tensor keeps `pinned` alive, and so the bytes in place.
        return storage_of(torch.frombuffer(pinned, dtype=torch.uint8))


class Saved:
    """What autograd holds instead of a tensor: an entry and the tensor's geometry."""

    __slots__ = ("_entry", "_dtype", "_size", "_stride", "_offset")

    def __init__(self, entry, tensor):
        self._entry = entry
        self._dtype = tensor.dtype
        self._size = tensor.size()
        self._stride = tensor.stride()
        self._offset = tensor.storage_offset()

    def tensor(self, manager):
        """The tensor as it was saved: same bytes, dtype, size, strides and offset."""
        return tensor_over(self._entry.storage(manager), self._dtype, self._size, self._stride,
                           self._offset)
