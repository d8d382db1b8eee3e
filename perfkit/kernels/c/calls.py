"""Calls of operators on the CPU that need no Python: `calls.cpp`, built once for the PyTorch that is installed.

By way of Python a call takes some 6 µs of one core, half as long as the smaller kernels themselves; this way 2, less
than many of PyTorch's own operators. Where there is no C++ compiler, or PyTorch comes without its headers, Python
serves every call: `available` is False then, and nothing else is different.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from perfkit.errors import RunFailed, UsageError
from perfkit.kernels.c import native

if TYPE_CHECKING:
    from perfkit.kernels.dispatch import Plan

NAMESPACE = "perfkit_python"  # the operators that Python serves, of the same names
SOURCE = Path(__file__).with_name("calls.cpp")
# In the order of TYPES in calls.cpp.
TYPES = [torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.float64, torch.float16]


def available() -> bool:
    """Whether calls can do without Python here; builds what they need. PERFKIT_KERNEL_CALLS=python says no."""
    wish = os.environ.get("PERFKIT_KERNEL_CALLS") or "native"
    if wish not in ("native", "python"):
        raise UsageError(f"PERFKIT_KERNEL_CALLS is {wish!r}.", "Set it to native or python, or unset it.")
    return wish == "native" and _library() is not None


class Operator:
    """An operator that `calls.cpp` serves, and the plans that it knows."""

    def __init__(self, name: str, gradient: bool) -> None:
        """Take over `perfkit::NAME`: its kernel on the CPU, and with `gradient` the one under autograd.

        Both send a call to those of `perfkit_python::NAME` where Python must serve it.
        """
        library = _library()
        assert library is not None, "asked for only when available"
        self._library = library
        self._plans = library.perfkit_take_over(name.encode(), gradient)
        if not self._plans:
            raise RunFailed(
                f"PyTorch did not take the operator perfkit::{name}: {library.perfkit_last_error().decode()}",
                "PERFKIT_KERNEL_CALLS=python does without.",
            )

    def remember(self, tensors: Sequence[torch.Tensor], numbers: Sequence[int | float], plan: Plan) -> None:
        """Let later calls with such tensors and these numbers follow `plan`, if its kernel has an address."""
        address = getattr(plan.run, "address", None)
        if address is None:
            return
        words = _shapes([(t.shape, None, t.dtype) for t in tensors])
        words += [len(numbers), *(w for number in numbers for w in (isinstance(number, float), _bits(number)))]
        integers = [n for n in plan.numbers if not isinstance(n, float)]
        reals = [n for n in plan.numbers if isinstance(n, float)]
        words += [address, len(integers), *integers, len(reals), *map(_bits, reals)]
        words += _shapes([(o.shape, o.strides, o.dtype) for o in plan.outputs])
        self._library.perfkit_remember(self._plans, (ctypes.c_int64 * len(words))(*words))

    def forget(self) -> None:
        """Send every call to Python again until it is remembered anew."""
        self._library.perfkit_forget(self._plans)


def _shapes(described: list[tuple[Sequence[int], Sequence[int] | None, torch.dtype]]) -> list[int]:
    """The number of tensors, then of each its type, its rank, its sizes, and its strides where they are given."""
    words = [len(described)]
    for sizes, strides, dtype in described:
        words += [TYPES.index(dtype), len(sizes), *sizes, *(strides or ())]
    return words


def _bits(number: int | float) -> int:
    """A number as 64 bits: a float's own, an integer as it is."""
    return int(struct.unpack("q", struct.pack("d", number))[0]) if isinstance(number, float) else int(number)


@functools.cache
def _library() -> Any:
    """`calls.cpp`, built and loaded; None where that is not possible."""
    library = native.load(SOURCE)
    if library is None:
        return None
    library.perfkit_take_over.argtypes = [ctypes.c_char_p, ctypes.c_int]
    library.perfkit_take_over.restype = ctypes.c_void_p
    library.perfkit_last_error.restype = ctypes.c_char_p
    library.perfkit_remember.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64)]
    library.perfkit_forget.argtypes = [ctypes.c_void_p]
    return library
