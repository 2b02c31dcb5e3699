"""Stands in for what torch._C has for pluggable allocators in a PyTorch with CUDA.

As strict as that: a setter takes an address, a null allocation is stored unchecked, what a
pluggable allocator does not support raises, and an allocator that was used cannot be exchanged.
The GPU's memory is the emulated driver's.
"""

import ctypes

import torch

ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)

SETTERS = ("set_init_fn", "set_reset_fn", "set_memory_fraction_fn", "set_base_alloc_fn",
           "set_record_stream_fn")
POOL_SETTERS = ("set_begin_allocate_to_pool", "set_end_allocate_to_pool_fn", "set_release_pool")


class PluggableAllocator:
    """What CUDAPluggableAllocator.allocator() is."""

    def __init__(self, alloc, free):
        assert isinstance(alloc, int) and isinstance(free, int)
        self._alloc, self._free = ALLOC(alloc), FREE(free)
        self._metadata = {}
        self.hooks = {}

    def malloc(self, size, device=0, stream=None):
        address = self._alloc(size, device, stream)
        self._metadata.setdefault(address, (size, device, stream))
        return address

    def raw_delete(self, address):
        if address not in self._metadata:
            raise RuntimeError("Trying to free a pointer not allocated here")
        self._free(address, *self._metadata.pop(address))

    def call(self, setter, prototype, *arguments):
        """Calls a hook if it is set."""
        if setter in self.hooks:
            return prototype(self.hooks[setter])(*arguments)
        return None


class PoolAllocator(PluggableAllocator):
    """The same of PyTorch 2.3 and later."""


def _setter(name):
    def set_hook(self, address):
        assert isinstance(address, int) and address != 0
        self.hooks[name] = address

    return set_hook


for _name in SETTERS:
    setattr(PluggableAllocator, _name, _setter(_name))
for _name in POOL_SETTERS:
    setattr(PoolAllocator, _name, _setter(_name))


def _unsupported(what):
    def refuse(*_arguments):
        raise RuntimeError(f"CUDAPluggableAllocator does not yet support {what}. If you need it, "
                           "please file an issue describing your use case.")

    return refuse


class StandIn:
    """Puts itself into torch for the rest of the process."""

    def __init__(self, devices=1, pools=True, used=False):
        self.current = None
        self.used = used
        self._pools = pools
        compiled = torch._C
        compiled._cuda_customAllocator = self._custom
        compiled._cuda_changeCurrentAllocator = self._change
        compiled._cuda_getDevice = lambda: 0
        compiled._cuda_getDeviceCount = lambda: devices
        compiled._cuda_emptyCache = self._empty_cache
        compiled._cuda_setMemoryFraction = self._set_memory_fraction
        for name, what in (("memoryStats", "getDeviceStats"),
                           ("resetPeakMemoryStats", "resetPeakStats"),
                           ("resetAccumulatedMemoryStats", "resetAccumulatedStats"),
                           ("memorySnapshot", "snapshot")):
            setattr(compiled, f"_cuda_{name}", _unsupported(what))
        torch.cuda.device_count = lambda: devices
        torch.cuda.cudart = lambda: self
        self.free_bytes, self.total_bytes = 1 << 30, 2 << 30

    def cudaMemGetInfo(self, _device):  # noqa: N802: CUDA's name
        return self.free_bytes, self.total_bytes

    def add_pools(self):
        """Pools as torch.cuda has them, each with an allocator of its own for what a program
        allocates in it, which it gives back at once."""
        from contextlib import contextmanager

        class MemPool:
            def __init__(self, allocator):
                assert isinstance(allocator, PoolAllocator)
                self.allocator = allocator

        @contextmanager
        def use_mem_pool(pool):
            block = pool.allocator.malloc(1 << 20)
            assert block
            yield
            pool.allocator.raw_delete(block)

        torch.cuda.MemPool, torch.cuda.use_mem_pool = MemPool, use_mem_pool

    def initialize(self):
        """As the first tensor on a GPU does."""
        torch.cuda._initialized = True
        self.used = True
        if self.current is not None:
            self.current.call("set_init_fn", ctypes.CFUNCTYPE(None, ctypes.c_int), 1)

    def _custom(self, alloc, free):
        return (PoolAllocator if self._pools else PluggableAllocator)(alloc, free)

    def _change(self, allocator):
        if self.used:
            raise RuntimeError("Can't swap an already initialized allocator")
        self.current = allocator

    def _empty_cache(self):
        self.current.call("set_reset_fn", ctypes.CFUNCTYPE(None))

    def _set_memory_fraction(self, fraction, device):
        self.current.call("set_memory_fraction_fn",
                          ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_int), fraction, device)
