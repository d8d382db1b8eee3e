"""The way from Python into PyTorch's dispatcher, shortened: `entry.cpp`, built once for what is installed.

PyTorch matches a call of a declared operator against its schema, 0.6 µs more than the generated code of its own
operators takes. Where there is no C++ compiler, or Python or PyTorch come without their headers, that is how it stays.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

from torch._ops import OpOverload

from perfkit.kernels.c import native

SOURCE = Path(__file__).with_name("entry.cpp")


def available() -> bool:
    """Whether calls can be shortened here; builds what that needs."""
    return _library() is not None


def shorten(overload: OpOverload) -> bool:
    """Let calls of `overload` with plain tensors and numbers, all by position, go straight to the dispatcher.

    Whether it was done: not for operators with other arguments or results, nor where `entry.cpp` cannot be built.
    """
    library = _library()
    general = getattr(overload, "_op", None)
    if library is None or not callable(general):
        return False
    entry = library.perfkit_entry(overload.name().encode(), general)
    if entry is None:
        return False
    overload._op = entry
    return True


@functools.cache
def _library() -> Any:
    """`entry.cpp`, built and loaded, its functions called with the GIL held; None where that is not possible."""
    library = native.load(SOURCE, python=True)
    if library is None:
        return None
    library.perfkit_entry.argtypes = [ctypes.c_char_p, ctypes.py_object]
    library.perfkit_entry.restype = ctypes.py_object
    return library
