"""One saved storage in GPU memory, which is copied out beside the work that goes on.

A copy reads the storage for a while after it was asked for. Until it has, or until the memory's
next user waits for it, a Source keeps the memory; who forgets the tensor meanwhile frees nothing.
"""

import collections
import threading

from . import _core
from ._entry import Stored, modified_in_place
from ._storage import WeakStorage, storage_of


class _Source:
    """Memory that a copy reads; ``tensor`` is None once it may have been given up."""

    __slots__ = ("tensor", "id", "device", "nbytes", "modified", "_address", "_version")

    def __init__(self, tensor, tensor_id):
        self.tensor = tensor.detach()
        self.id = tensor_id
        self.device = tensor.device
        storage = storage_of(tensor)
        self.nbytes = storage.nbytes()
        self.modified = False
        self._address = storage.data_ptr()
        self._version = tensor._version

    def check(self, tensor):
        # Work that was queued meanwhile may have come before the copy.
        self.modified = self.modified or tensor._version != self._version

    def resized(self, tensor):
        # What the copy read may have been freed memory, which only its user knows how to refill.
        storage = storage_of(tensor)
        return (storage.data_ptr(), storage.nbytes()) != (self._address, self.nbytes)


class SourceWindow:
    """The sources that are being read, up to so many bytes of each device. Thread-safe."""

    def __init__(self, manager, cuda, most_bytes):
        self._manager = manager
        self._cuda = cuda
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._sources = {}  # device -> deque of sources, oldest first
        self._bytes = collections.Counter()  # by device

    def add(self, source):
        """Keeps the source. Called where its memory was last used, on that stream."""
        with self._lock:
            self._sources.setdefault(source.device, collections.deque()).append(source)
            self._bytes[source.device] += source.nbytes
        self.sweep()

    def kept_bytes(self):
        """Bytes of all devices that are kept."""
        with self._lock:
            return sum(self._bytes.values())

    def sweep(self):
        """Gives up what was read, and what is too much even though it was not."""
        with self._lock:
            for device, sources in self._sources.items():
                while sources and self._give_up(sources[0], self._bytes[device]):
                    self._bytes[device] -= sources.popleft().nbytes

    def _give_up(self, source, kept_bytes):
        tensor = source.tensor
        source.check(tensor)
        if source.resized(tensor):
            return True  # without its tensor being forgotten: its entry leaves it to others
        if not self._manager.source_read(source.id):
            if kept_bytes <= self._most_bytes:
                return False
            # The stream that is current waits for the copy, and PyTorch for that stream, whichever
            # the memory was allocated for.
            try:
                self._manager.release_source(source.id, self._cuda.stream(source.device))
            except _core.Error:
                return False  # the stream captures a graph, for example: it is kept for longer
            self._cuda.used_by(tensor, source.device)
        source.tensor = None
        return True


class DeviceEntry:
    """A storage of a GPU in Frostline's care, as long as a handle refers to it.

    Raises frostline.Error when no tier takes it, or the stream is capturing a graph.
    """

    __slots__ = ("key", "_stored", "_source", "_weak", "_version", "_cuda", "_fetched",
                 "__weakref__")

    held = False  # its memory is given up without waiting for its users: they have it still

    def __init__(self, manager, tensor, cuda, window):
        storage = storage_of(tensor)
        self._weak = WeakStorage(storage)
        self.key = self._weak.key
        self._version = tensor._version
        self._cuda = cuda
        self._fetched = None
        tensor_id = manager.put_device(storage.data_ptr(), storage.nbytes(),
                                       cuda.stream(tensor.device), True)
        self._stored = Stored(manager, tensor_id, storage.nbytes(), None)
        self._source = _Source(tensor, tensor_id)
        window.add(self._source)

    def holds(self, tensor):
        """Whether what is stored is what the tensor's storage holds now."""
        return self._version == tensor._version

    def storage(self, manager):
        """The storage with its bytes in memory of the GPU that it was saved on.

        Raises what backward without hooks would raise.
        """
        source = self._source
        tensor = source.tensor  # another thread may give it up meanwhile
        if tensor is not None:
            if source.resized(tensor):
                return storage_of(tensor)
            source.check(tensor)
        if source.modified:
            raise modified_in_place()
        if tensor is not None:
            return storage_of(tensor)
        return self._fetch(manager, source)

    def _fetch(self, manager, source):
        stream = self._cuda.stream(source.device)
        # Tensors that share a storage share what was fetched, if they are used in its order.
        if self._fetched is not None and self._fetched[1] == stream:
            storage = self._fetched[0].storage()
            if storage is not None:
                return storage
        storage = storage_of(self._cuda.allocate(source.nbytes, source.device))
        manager.get_device(self._stored.id, storage.data_ptr(), source.nbytes, stream)
        self._fetched = (WeakStorage(storage), stream)
        return storage
