"""Frostline: training that needs more memory than it is given.

``frostline.offload`` moves the tensors that autograd saves for the backward pass out of the way and
brings them back in time. torch is imported when offload is first used, and not before.

``frostline.torch`` makes Frostline the allocator of PyTorch's GPU memory.
"""

import importlib

from . import _loading

try:
    from ._core import (Error, InvalidArgument, NoSpace, __version__, format_byte_size,
                        parse_byte_size)
except ImportError as error:
    if (words := _loading.remedy(error)) is None:
        raise
    raise ImportError(words, name=error.name, path=error.path) from None

__all__ = [
    "Error",
    "InvalidArgument",
    "NoSpace",
    "__version__",
    "format_byte_size",
    "offload",
    "parse_byte_size",
    "torch",
]


def __getattr__(name):
    if name == "offload":
        from ._offload import offload

        globals()[name] = offload
        return offload
    if name == "torch":
        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
