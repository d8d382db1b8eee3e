"""The C library's allocator, where it is glibc: asked to keep what is freed, so that no step takes fresh pages.

By itself glibc maps a block of more than 32 MB apart and unmaps it when it is freed, and gives the free end of its heap
back to the system (mallopt(3)). A training step that frees its activations and gradients then gets them back as
fresh pages, each of which the kernel clears: 1.2 GB and 15 % of the CPU time of a step of GPT-2 124M.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

# malloc.h
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
_NEVER = -1  # as a size: the largest there is
_GROWTH = 256 * 1024 * 1024  # bytes that the heap grows by at least

_kept = False


def glibc() -> Any:
    """The C library of this process where it is glibc, else None."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return None
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    library.mallopt.argtypes, library.malloc_trim.argtypes = [ctypes.c_int, ctypes.c_int], [ctypes.c_size_t]
    return library


def keep_freed() -> bool:
    """Let this process keep freed memory for its next blocks, for good; whether its C library can."""
    global _kept
    library = glibc()
    if library is not None and not _kept:
        asked = ((MMAP_MAX, 0), (TRIM_THRESHOLD, _NEVER), (TOP_PAD, _GROWTH))
        _kept = all(library.mallopt(name, value) == 1 for name, value in asked)
    return _kept


def keeps_freed() -> bool:
    """Whether `keep_freed` was called and could."""
    return _kept
