"""Launches of kernels that may begin while the one before them on the stream ends: programmatic dependent launch.

CuPy has no way to ask the driver for it, so its `cuLaunchKernelEx` is called here. A kernel launched so reads before
the others have ended. So it is done only where a caller says, by `overlapping`, that they write nothing it reads early.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from perfkit.errors import RunFailed

_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_…, of cuda.h
_allowed = False


@contextmanager
def overlapping(allowed: bool = True) -> Iterator[None]:
    """Kernels launched inside may begin early, if they are made for it.

    Such a kernel reads its weights, or what a cache kept, before the kernels ahead of it have ended: none of them, back
    to the last one that was not launched early, may write these.
    """
    global _allowed  # as long as the block lasts
    before, _allowed = _allowed, allowed
    try:
        yield
    finally:
        _allowed = before


def allowed() -> bool:
    """Return whether kernels may begin early now."""
    return _allowed


class _HostValue(ctypes.Union):
    _fields_ = [("allowed", ctypes.c_int), ("bytes", ctypes.c_char * 64)]  # as ctypes wants it


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("padding", ctypes.c_char * 4), ("value", _HostValue)]


class _Configuration(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint),
    ]  # fmt: skip


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def launch(
    function: int, grid: tuple[int, int, int], block: int, shared: int, stream: int, arguments: Sequence[int | float]
) -> None:
    """Launch a kernel of pointers, int64 and double on `stream`, early. Raises `RunFailed` when the driver refuses."""
    attribute = _Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, b"", _HostValue(allowed=1))
    sizes = (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(block, 1, 1)
    given = _Configuration(*sizes, shared, stream, ctypes.pointer(attribute), 1)
    values = [ctypes.c_double(a) if isinstance(a, float) else ctypes.c_int64(a) for a in arguments]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    code = _driver().cuLaunchKernelEx(ctypes.byref(given), ctypes.c_void_p(function), pointers, None)
    if code:
        raise RunFailed(
            f"The CUDA driver could not launch a kernel early: error {code}.", "Run with --cuda-graphs none."
        )
