"""Frostline as the allocator of PyTorch's memory.

``enable()`` gives all tensors on GPUs memory from Frostline's heaps, before CUDA is used.
"""

import ctypes
import warnings

import torch

from . import _torch_library as _library
from . import _torch_statistics
from ._core import Error, InvalidArgument, parse_byte_size

__all__ = ["allocator", "enable", "enable_cpu", "enabled", "cpu_stats"]

# The setters of PyTorch's allocator object, and what they are given.
_HOOKS = {
    "set_init_fn": "frostline_torch_init",
    "set_reset_fn": "frostline_torch_reset",
    "set_memory_fraction_fn": "frostline_torch_memory_fraction",
    "set_base_alloc_fn": "frostline_torch_base_alloc",
    "set_record_stream_fn": "frostline_torch_record_stream",
}
# PyTorch before 2.3 or so has other forms of these.
_POOL_HOOKS = {
    "set_begin_allocate_to_pool": "_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "_end_allocate_to_pool",
    "set_release_pool": "_release_pool",
}

_process_wide = None


def allocator():
    """A ``torch.cuda.memory.CUDAPluggableAllocator`` over Frostline's heaps, for
    ``torch.cuda.MemPool(allocator.allocator())``. Raises Error where PyTorch has no CUDA.
    """
    if not hasattr(torch._C, "_cuda_customAllocator"):
        raise Error("this PyTorch has no CUDA, or no pluggable allocators (they came with 2.0): "
                    "install one that has")
    made = torch.cuda.memory.CUDAPluggableAllocator(
        _library.PATH, "frostline_torch_alloc", "frostline_torch_free")
    inner = made.allocator()
    for setter, function in _HOOKS.items():
        if hasattr(inner, setter):
            getattr(inner, setter)(_library.address_of(function))
    if all(hasattr(inner, setter) for setter in _POOL_HOOKS):
        for setter, suffix in _POOL_HOOKS.items():
            getattr(inner, setter)(_library.address_of("frostline_torch" + suffix))
    else:
        warnings.warn("this PyTorch cannot tell an allocator of memory pools: do not capture CUDA "
                      "graphs, their memory may be used by others", stacklevel=3)
    return made


def enable(budget=None, chunk=None):
    """Makes Frostline the allocator of all GPU memory of this process, for good.

    ``budget``: the most that it takes of each GPU ("20GiB", or bytes); by default what is free
    there when it is first used. ``chunk``: the pieces that memory is taken in (default "2MiB").
    Raises Error: PyTorch has no CUDA, has used a GPU already, or this was called before; and
    InvalidArgument: a value is wrong, here or in FROSTLINE_TORCH_BUDGET and FROSTLINE_TORCH_CHUNK,
    or the environment has another name that begins so.
    """
    global _process_wide
    if _process_wide is not None:
        raise Error("frostline.torch.enable() was called before; it holds until the process ends")
    if not hasattr(torch._C, "_cuda_changeCurrentAllocator"):
        allocator()  # which says why not
    if torch.cuda.is_initialized():
        raise Error("PyTorch uses the GPU already: call frostline.torch.enable() before the first "
                    "tensor on one, right after the imports")
    _library.configure(budget, chunk)
    made = allocator()
    try:
        torch.cuda.memory.change_current_allocator(made)
    except RuntimeError as error:
        raise Error(f"PyTorch keeps its allocator ({error}): call frostline.torch.enable() before "
                    "the GPU is used, and no other allocator") from error
    _process_wide = made
    if why := _library.raise_when_out_of_memory():
        warnings.warn("out of memory will be a RuntimeError, and no torch.cuda.OutOfMemoryError: "
                      + why, stacklevel=2)
    _torch_statistics.install()


def enabled():
    """Whether enable() took effect in this process."""
    return _process_wide is not None


def enable_cpu(budget=None):
    """Gives CPU tensors memory from a Frostline heap from now on, for good.

    ``budget``: the most that it takes; by default all memory of the machine. In a forked child
    PyTorch's own allocator serves. Raises Error: Frostline was not built for this PyTorch, or this
    was called before; and InvalidArgument: the budget is no size, or has not one chunk of 2 MiB.
    """
    library = _library.c10()
    capacity = 0  # all of the machine's
    if budget is not None:
        capacity = parse_byte_size(str(budget))
        if capacity == 0:
            raise InvalidArgument(f"budget: '{budget}' is no room for tensors: give a size such as "
                                  "8GiB, or leave it out for all memory of the machine")
    _library.check_c10(library.frostline_c10_use_for_cpu(ctypes.c_uint64(capacity)), library)


def cpu_stats():
    """Of the heap of CPU tensors: bytes that live and that are mapped, and allocations so far."""
    figures = [ctypes.c_uint64() for _ in range(3)]
    try:
        _library.c10().frostline_c10_cpu_statistics(*map(ctypes.byref, figures))
    except Error:
        pass  # there is no such heap
    return dict(zip(("live_bytes", "mapped_bytes", "allocations"), (f.value for f in figures)))
