"""Which CUDA driver the demo of the device tier runs on: a GPU's where there is a GPU."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

from settings import UsageError

DRIVER = "libcuda.so.1"
CUDA_SUCCESS = 0


@dataclass(frozen=True)
class Driver:
    """`library` is what FROSTLINE_CUDA_DRIVER shall name."""

    library: str
    is_gpu: bool


def gpu_count() -> int:
    """How many GPUs the driver of this machine has; 0 without a driver. Takes no memory of them."""
    try:
        driver = ctypes.CDLL(DRIVER)
        count = ctypes.c_int(0)
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) != CUDA_SUCCESS:
            return 0
        return count.value
    except (OSError, AttributeError):
        return 0


def choose_driver(build: Path, named: str | None) -> Driver:
    """`named` is what the environment says, and goes first; then a GPU; then the emulator of
    `build`. Raises UsageError when what was built does not fit."""
    emulator = build / "lib" / "libfrostline_emulator.so"
    if named:
        return Driver(named, is_gpu=False)
    if gpu_count() > 0:
        kernels = build / "bin" / "frostline_train_kernels.fatbin"
        if not kernels.exists():
            raise UsageError(
                f"there is a GPU, but {kernels} is missing: build where nvcc is on PATH, or set "
                f"FROSTLINE_CUDA_DRIVER={emulator}"
            )
        return Driver(DRIVER, is_gpu=True)
    if not emulator.exists():
        raise UsageError(
            f"there is no GPU, and {emulator} is missing: ./run demo --device builds it"
        )
    return Driver(str(emulator), is_gpu=False)
