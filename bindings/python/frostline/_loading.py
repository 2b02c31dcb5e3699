"""What to do when a library of ours cannot be loaded.

A library with thread-local data that is loaded while the process runs needs some of the room that
the loader keeps for such libraries, and other packages may have used it up.
"""

_REMEDY = ("start Python with GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096 in its "
           "environment, which makes more room")


def remedy(error):
    """The loader's words with what helps, or None where this is not what is wrong."""
    return f"{error}: {_REMEDY}" if "static TLS" in str(error) else None
