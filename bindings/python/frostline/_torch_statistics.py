"""What torch.cuda tells of memory, for the allocator that Frostline is.

PyTorch's functions in Python (memory_stats, memory_allocated, max_memory_reserved, memory_summary,
reset_peak_memory_stats and the rest) all stand on a few compiled ones, which a pluggable allocator
refuses. Those are replaced, so that every name that a program has for them works.
"""

import torch

from . import _torch_library as library

_EMPTY = library.Figure()


def _by_pool(figure):
    """PyTorch tells small and large blocks apart, which share their memory here."""
    return {"all": figure.as_dict(), "small_pool": _EMPTY.as_dict(), "large_pool": figure.as_dict()}


def _active(figures):
    """Bytes that are in use, or will be until other streams' work on them is done."""
    allocated = figures.allocated_bytes
    current = allocated.current + figures.pending_bytes
    return library.Figure(current, max(current, allocated.peak), allocated.allocated,
                          max(0, allocated.freed - figures.pending_bytes))


def memory_stats(device):
    """What torch.cuda.memory_stats_as_nested_dict() returns."""
    figures = library.statistics(device)
    stats = {
        "allocation": _by_pool(figures.allocations),
        "active": _by_pool(figures.allocations),
        "allocated_bytes": _by_pool(figures.allocated_bytes),
        "requested_bytes": _by_pool(figures.allocated_bytes),
        "active_bytes": _by_pool(_active(figures)),
        "reserved_bytes": _by_pool(figures.reserved_bytes),
        "num_alloc_retries": figures.retries,
        "num_ooms": figures.out_of_memory,
    }
    for name in ("segment", "inactive_split", "inactive_split_bytes"):
        stats[name] = _by_pool(_EMPTY)
    for name in ("oversize_allocations", "oversize_segments"):
        stats[name] = _EMPTY.as_dict()
    for name in ("max_split_size", "num_sync_all_streams", "num_device_alloc", "num_device_free"):
        stats[name] = 0
    return stats


def _segment(device, pool, blocks, reserved_bytes):
    size_bytes = sum(block.size_bytes for block in blocks)
    return {
        "device": device,
        "address": min((block.address for block in blocks), default=0),
        "total_size": max(size_bytes, reserved_bytes),
        "allocated_size": size_bytes,
        "active_size": size_bytes,
        "requested_size": size_bytes,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": pool,
        "is_expandable": True,
        "frames": [],
        "blocks": [
            {"address": block.address, "size": block.size_bytes,
             "requested_size": block.size_bytes, "state": "active_allocated", "frames": []}
            for block in sorted(blocks, key=lambda block: block.address)
        ],
    }


def memory_snapshot(*_arguments):
    """What lives, as one segment for each device and each memory pool. No traces are kept."""
    segments = []
    for device in range(torch.cuda.device_count()):
        figures = library.statistics(device)
        pools = {(0, 0): []} if figures.reserved_bytes.current else {}
        for block in library.live(device):
            pools.setdefault(tuple(block.pool), []).append(block)
        for pool, blocks in pools.items():
            own = 0 if any(pool) else figures.reserved_bytes.current - figures.pool_bytes
            segments.append(_segment(device, pool, blocks, own))
    return {"segments": segments, "device_traces": [], "allocator_settings": {}}


def _device_number(device):
    """Of a device as PyTorch takes them: a number, a name, a torch.device; None is the current."""
    if isinstance(device, int):
        return device
    index = torch.device("cuda" if device is None else device).index
    return torch.cuda.current_device() if index is None else index


def _bounded_mem_get_info(original):
    def mem_get_info(device=None):
        """(free, total) bytes of the device, where no more is free than Frostline's budget has."""
        free, total = original(device)
        number = _device_number(device)
        figures = library.statistics(number)
        if figures.budget_bytes:
            left = figures.budget_bytes - figures.reserved_bytes.current
            free = min(free, max(0, left))
        return free, total

    return mem_get_info


def install():
    """Puts these in the place of what a pluggable allocator refuses."""
    compiled = torch._C
    compiled._cuda_memoryStats = memory_stats
    compiled._cuda_resetPeakMemoryStats = library.reset_peaks
    compiled._cuda_resetAccumulatedMemoryStats = library.reset_accumulated
    compiled._cuda_memorySnapshot = memory_snapshot
    torch.cuda.memory.mem_get_info = _bounded_mem_get_info(torch.cuda.memory.mem_get_info)
    torch.cuda.mem_get_info = torch.cuda.memory.mem_get_info
