"""Stands in for PyTorch's CUDA side where there is no GPU: CPU tensors over the memory of the
emulated driver, and its streams. PyTorch's operations on them run at once, on no stream; work that is
queued is asked for here.
"""

import ctypes
import os
from pathlib import Path

import torch

LIBRARY = Path(os.environ.get("FROSTLINE_BUILD_DIR", "build")) / "lib" / "libfrostline_emulator.so"


class EmulatedCuda:
    """What frostline._cuda.Cuda is, for tensors that tensor() and allocate() made."""

    device_types = ("cpu",)

    def __init__(self, settings):
        self._driver = ctypes.CDLL(str(LIBRARY.resolve()))
        self._driver.frostline_emulator_misuse.restype = ctypes.c_char_p
        assert self._driver.frostline_emulator_restart(settings.encode()) == 0
        self._context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        self._call("cuCtxSetCurrent", self._context)
        self._memory = []
        self.current = self.new_stream()
        self.allocated_for = []  # (device, stream) of each allocate()
        self.used = []  # addresses given to used_by()

    def _call(self, name, *arguments):
        result = getattr(self._driver, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    # ---- what the offload asks for ----

    def stream(self, _device):
        """The stream that is current."""
        return self.current

    def allocate(self, size_bytes, device):
        """Bytes of emulated device memory, which live as long as this object."""
        self.allocated_for.append((device, self.current))
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        self._memory.append(address)
        memory = (ctypes.c_ubyte * size_bytes).from_address(address.value)
        return torch.frombuffer(memory, dtype=torch.uint8)

    def used_by(self, tensor, _device):
        """Notes the tensor."""
        self.used.append(tensor.data_ptr())

    # ---- what tests do ----

    def new_stream(self):
        """The handle of another stream, with no part in the default stream's order."""
        made = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(made), 1)
        return made.value

    def tensor(self, *size):
        """A tensor of random floats on the device."""
        content = torch.randn(*size)
        made = self.allocate(content.numel() * 4, content.device).view(torch.float32)
        return made.view(*size).copy_(content)

    def fill_later(self, tensor, byte):
        """Queues work on the current stream that writes the byte all over the tensor."""
        self._call("cuMemsetD8Async", ctypes.c_uint64(tensor.data_ptr()), ctypes.c_ubyte(byte),
                   ctypes.c_size_t(tensor.numel() * tensor.element_size()),
                   ctypes.c_void_p(self.current))

    def synchronize(self):
        """Waits for all streams."""
        self._call("cuCtxSynchronize")

    def close(self):
        """Ends it; the reports of misuse, leaks included. No tensor of it may be used any more."""
        self.synchronize()
        reports = [self._driver.frostline_emulator_misuse(ctypes.c_size_t(i)).decode()
                   for i in range(self._driver.frostline_emulator_misuse_count())]
        for address in self._memory:
            self._call("cuMemFree_v2", address)
        self._call("cuCtxSetCurrent", None)
        self._call("cuDevicePrimaryCtxRelease_v2", 0)
        assert self._driver.frostline_emulator_restart(b"") == 0
        return reports
