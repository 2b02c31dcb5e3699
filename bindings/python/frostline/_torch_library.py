"""The C functions of frostline_torch.h, and what was compiled against PyTorch's own C++ types.

PyTorch gets the addresses of these functions and calls them without Python.
"""

import ctypes
from pathlib import Path

from . import _core, _loading
from ._core import Error, InvalidArgument

# Symbols of libfrostline.so are found through what links it.
PATH = _core.__file__
_C10_PATH = Path(PATH).with_name("_c10.so")

_INVALID_ARGUMENT = 1


class Figure(ctypes.Structure):
    """How much is in use, and was at most; what came and went in all."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("current", "peak", "allocated", "freed")]

    def as_dict(self):
        return {name: getattr(self, name) for name, _ in self._fields_}


class Statistics(ctypes.Structure):
    """frostline_torch_statistics"""

    _fields_ = [(name, Figure) for name in ("allocations", "allocated_bytes", "reserved_bytes")] + [
        (name, ctypes.c_uint64)
        for name in ("retries", "out_of_memory", "pending_bytes", "pools", "pool_bytes",
                     "budget_bytes", "foreign_frees")
    ]


class Block(ctypes.Structure):
    """frostline_torch_block"""

    _fields_ = [("address", ctypes.c_uint64), ("size_bytes", ctypes.c_uint64),
                ("birth", ctypes.c_uint64), ("pool", ctypes.c_uint64 * 2)]


_library = ctypes.CDLL(PATH)
_library.frostline_last_error.restype = ctypes.c_char_p
_library.frostline_torch_live.restype = ctypes.c_size_t


def address_of(function):
    """The address of one of the library's functions, as an integer."""
    return ctypes.cast(getattr(_library, function), ctypes.c_void_p).value


def _raise_unless_ok(status, last_error):
    if status != 0:
        message = last_error().decode("utf-8", "replace")
        raise (InvalidArgument if status == _INVALID_ARGUMENT else Error)(message)


def _check(status):
    _raise_unless_ok(status, _library.frostline_last_error)


def check_c10(status, library):
    """Raises what a call of c10()'s functions failed with, if it did."""
    _raise_unless_ok(status, library.frostline_c10_last_error)


def configure(budget, chunk):
    """Texts, or None for what holds anyway. Raises Error, and nothing changes."""
    _check(_library.frostline_torch_configure(
        *(None if text is None else str(text).encode() for text in (budget, chunk))))


def statistics(device):
    """Of a device by number; all zero where it is not in use."""
    figures = Statistics()
    _check(_library.frostline_torch_get_statistics(ctypes.c_int(device), ctypes.byref(figures)))
    return figures


def reset_peaks(device):
    _check(_library.frostline_torch_reset_peaks(ctypes.c_int(device)))


def reset_accumulated(device):
    _check(_library.frostline_torch_reset_accumulated(ctypes.c_int(device)))


def live(device):
    """The blocks that live, which other threads may change meanwhile."""
    capacity = 0
    while True:
        blocks = (Block * capacity)()
        count = _library.frostline_torch_live(ctypes.c_int(device), blocks,
                                              ctypes.c_size_t(capacity))
        if count <= capacity:
            return blocks[:count]
        capacity = count + count // 8


def c10():
    """The library on PyTorch's own types. Raises Error where it cannot be loaded: PyTorch's headers
    were not there when Frostline was built, or were of another version than the PyTorch that runs.
    """
    try:
        library = ctypes.CDLL(str(_C10_PATH))
    except OSError as error:
        raise Error(_loading.remedy(error) or "Frostline was not built for this PyTorch: build it "
                    "with FROSTLINE_PYTHON set to this interpreter") from error
    library.frostline_c10_last_error.restype = ctypes.c_char_p
    return library


def raise_when_out_of_memory():
    """From now on a failed allocation is an exception: PyTorch's own OutOfMemoryError, or else a
    RuntimeError, and then it says why.
    """
    why = None
    try:
        handler = c10().frostline_c10_raise_out_of_memory
    except Error as error:
        handler, why = _library.frostline_torch_throw_out_of_memory, str(error)
    _library.frostline_torch_on_out_of_memory(ctypes.cast(handler, ctypes.c_void_p))
    return why
