"""One saved storage and the handles on it.

An entry starts out as the tensor's own memory, adopted without a copy. When its bytes have moved to
a lower tier, Frostline gives the memory back: the alias goes, and with it PyTorch's allocation.
"""

import torch

from ._core import Error
from ._storage import WeakStorage, can_count_users, key_of, shared, storage_of, tensor_over

# How many settle rounds a storage that others still refer to stays charged to the budget. Moving it
# would free nothing while they hold it, so it is left to them.
_PATIENCE = 256

# A view of less than one part in so many of its storage, such as a batch of a data set, is no
# reason to move the whole.
_SMALLEST_PART = 16


def is_movable(tensor, min_bytes, device_types):
    """Whether a tensor is plain dense memory of such devices, and its storage worth moving."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return False
    if tensor.device.type not in device_types or tensor.is_quantized or tensor.is_inference():
        return False
    if tensor.is_conj() or tensor.is_neg():
        return False
    try:
        storage = storage_of(tensor)
        if storage.nbytes() < min_bytes or storage.data_ptr() == 0:
            return False
        seen_bytes = tensor.numel() * tensor.element_size()
        return seen_bytes * _SMALLEST_PART >= storage.nbytes()
    except (RuntimeError, NotImplementedError):
        return False  # wrapped by functorch, or without storage


def modified_in_place():
    """The error that backward would raise without hooks."""
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an "
        "inplace operation after it was saved (found by frostline.offload)")


class _Alias:
    """The adopted memory. Called by Frostline, on any thread, when the bytes have left it."""

    __slots__ = ("tensor", "version", "modified", "freed_memory")

    def __init__(self, tensor, version, freed_memory):
        self.tensor = tensor.detach()
        self.version = version
        self.freed_memory = freed_memory
        self.modified = False

    def check(self):
        # The bytes may have been copied at any time up to now.
        tensor = self.tensor  # a worker may forget it meanwhile
        if tensor is not None and tensor._version != self.version:
            self.modified = True
        return not self.modified

    def __call__(self):
        self.check()
        if self.tensor is not None:
            size_bytes = storage_of(self.tensor).nbytes()
            self.tensor = None
            self.freed_memory.add(size_bytes)


class Stored:
    """Frostline's tensor, dropped when this object goes.

    Not the entry's own __del__: a weak reference still gives the object to another thread while its
    __del__ runs, and so would give it an entry whose bytes are gone. Whoever uses the id keeps this
    object meanwhile.
    """

    __slots__ = ("manager", "id", "size_bytes", "freed_memory")

    def __init__(self, manager, tensor_id, size_bytes, freed_memory):
        self.manager = manager
        self.id = tensor_id
        self.size_bytes = size_bytes
        self.freed_memory = freed_memory  # None for memory that is not the process's

    def __del__(self):
        try:
            self.manager.drop(self.id)
        except Error:
            return  # a forked child, and the tensor is its parent's
        # A backward pass frees as much in gradients of its own as in what it drops here.
        if self.freed_memory is not None:
            self.freed_memory.add(self.size_bytes)


class Entry:
    """A storage in Frostline's care, as long as a handle refers to it.

    Raises frostline.Error when no tier takes it.
    """

    __slots__ = ("key", "held", "_stored", "_alias", "_weak", "_address", "_nbytes", "_patience",
                 "_version", "__weakref__")

    def __init__(self, manager, tensor, freed_memory):
        storage = storage_of(tensor)
        self._weak = WeakStorage(storage)
        self.key = self._weak.key
        self._address = storage.data_ptr()
        self._nbytes = storage.nbytes()
        self._alias = _Alias(tensor, tensor._version, freed_memory)
        self._version = tensor._version
        self._patience = _PATIENCE
        self.held = can_count_users()
        tensor_id = manager.adopt(self._address, self._nbytes, self._alias, self.held)
        self._stored = Stored(manager, tensor_id, self._nbytes, freed_memory)

    @staticmethod
    def key_of(tensor):
        return key_of(storage_of(tensor))

    def holds(self, tensor):
        """Whether what is stored is what the tensor's storage holds now."""
        return self._version == tensor._version

    def settle_if_idle(self, manager):
        """True when the entry need not be asked again."""
        stored, alias = self._stored, self._alias.tensor
        if alias is None or stored is None:
            return True
        self._patience -= 1
        storage = storage_of(alias)
        if (storage.data_ptr(), storage.nbytes()) != (self._address, self._nbytes):
            self._leave_to_others(alias)  # resized: what was adopted is freed memory
            return True
        # Here `alias` is only one more name for the tensor, not one more tensor.
        if shared(storage):
            if self._patience > 0:
                return False
            self._leave_to_others(alias)
            return True
        manager.settle(stored.id)
        return True

    # In this order, because another thread may be using the entry: a storage that is not stored
    # has an alias for good. Dropping makes Frostline call the old one.
    def _leave_to_others(self, tensor):
        self._alias = _Alias(tensor, self._version, self._alias.freed_memory)
        self._stored = None

    def storage(self, manager):
        """The storage with its bytes in memory; raises what backward without hooks would raise."""
        stored = self._stored  # before the alias, see _leave_to_others
        alias = self._alias
        if not alias.check():
            raise modified_in_place()
        if stored is None:
            return storage_of(alias.tensor)
        try:
            pinned = manager.pin(stored.id)
        except Error as error:
            # Other pins fill the budget, it is smaller than this, or the tiers were closed.
            if error.code not in ("no_space", "closed"):
                raise
            flat = torch.empty(self._nbytes, dtype=torch.uint8)
            manager.get_into(stored.id, flat.data_ptr(), self._nbytes)
            return storage_of(flat)
        original = alias.tensor
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
