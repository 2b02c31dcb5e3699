"""Measures memory from outside: bytes in the tiers, resident pages, storages that are gone."""

import re
import time

import torch


def used_bytes(offload):
    """Bytes in use by tier."""
    return {name: tier["used_bytes"] for name, tier in offload.stats()["tiers"].items()}


def wait_until(condition, timeout_s=20.0):
    """Waits for what background moves bring about; fails if it does not come to pass."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "this did not come to pass in time"
        time.sleep(0.001)


def resident_bytes():
    """Resident memory of this process now."""
    with open("/proc/self/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+) kB", status.read()).group(1)) << 10


def untyped(tensor):
    """The tensor's storage, by whatever name this torch has for it."""
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    storage = tensor.storage()
    return storage._untyped() if hasattr(storage, "_untyped") else storage.untyped()


class weak_storage:  # noqa: N801 (used like a function)
    """A weak reference to a tensor's storage."""

    def __init__(self, tensor):
        storage = untyped(tensor)
        self.kind = type(storage)
        self.reference = storage._weak_ref()

    def __del__(self):
        self.kind._free_weak_ref(self.reference)


def storage_is_gone(weak):
    """Whether the memory behind a weak reference has been freed."""
    return weak.kind._expired(weak.reference)


def storage_address(tensor):
    """Where the tensor's storage begins: equal for views of one storage."""
    assert isinstance(tensor, torch.Tensor)
    return untyped(tensor).data_ptr()
