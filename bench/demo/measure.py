"""Measurements that a training process takes of itself, none of which changes what it computes."""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import time
from collections import Counter

import torch

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_now() -> tuple[int, int]:
    """(resident bytes, of these mapped from files or shared) of this process."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        fields = statm.read().split()
    return int(fields[1]) * PAGE_BYTES, int(fields[2]) * PAGE_BYTES


def peak_resident_bytes() -> int:
    """VmHWM: the most that was ever resident in this process, mapped files included."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no line VmHWM")


class ResidentSampler:
    """Notes the resident bytes every `interval_s` on a thread of its own; times are monotonic."""

    def __init__(self, interval_s: float = 0.04):
        self.samples: list[tuple[float, int, int]] = []
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ResidentSampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.samples.append((time.monotonic(), *resident_now()))
            if self._stop.wait(self._interval_s):
                return


def storage_of(tensor: torch.Tensor) -> tuple[int, int]:
    """(address, bytes) of the storage under a tensor; views of one storage give the same pair."""
    if hasattr(tensor, "untyped_storage"):
        storage = tensor.untyped_storage()
    else:  # PyTorch before 2.0
        storage = tensor.storage().untyped()
    return storage.data_ptr(), storage.nbytes()


class SavedBytes:
    """Counts the storages that autograd saves for backward while the block runs.

    A storage counts once however many views of it are saved, parameters do not count. An address
    stands for one storage, because the graph keeps everything alive that was saved. The hooks hand
    on the tensor itself, so the step uses the memory that it would use without them.
    """

    def __init__(self, model: torch.nn.Module):
        self._ignored = {storage_of(parameter)[0] for parameter in model.parameters()}
        self._sizes: dict[int, int] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._note, lambda tensor: tensor)

    def __enter__(self) -> SavedBytes:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)

    def _note(self, tensor: torch.Tensor) -> torch.Tensor:
        address, size_bytes = storage_of(tensor)
        if address not in self._ignored:
            self._sizes[address] = size_bytes
        return tensor

    def result(self) -> dict:
        """Total bytes, number of storages, and how many there are of each size in bytes."""
        by_size = sorted(Counter(self._sizes.values()).items(), reverse=True)
        return {
            "bytes": sum(self._sizes.values()),
            "storages": len(self._sizes),
            "by_size": [{"size_bytes": size, "count": count} for size, count in by_size],
        }


def weights_sha256(model: torch.nn.Module) -> str:
    """One hash over the exact bits of all weights, in the order of the model."""
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        dense = tensor.detach().cpu().contiguous()
        size_bytes = dense.numel() * dense.element_size()
        # The bytes in place: no copy, and no numpy, which the demo does not ask for.
        digest.update((ctypes.c_char * size_bytes).from_address(dense.data_ptr()))
    return digest.hexdigest()
