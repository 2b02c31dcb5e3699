"""Frostline: training that needs more memory than it is given.

``frostline.offload`` moves the tensors that autograd saves for the backward pass out of the way and
brings them back in time. torch is imported when offload is first used, and not before.
"""

from ._core import Error, InvalidArgument, NoSpace, __version__, format_byte_size, parse_byte_size
from ._offload import offload

__all__ = [
    "Error",
    "InvalidArgument",
    "NoSpace",
    "__version__",
    "format_byte_size",
    "offload",
    "parse_byte_size",
]
