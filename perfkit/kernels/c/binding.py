"""Call a C kernel on the data pointers of tensors.

A kernel takes its input tensors, its output tensors, then the operation's scalars, and returns 0 or a code.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from perfkit.errors import RunFailed
from perfkit.kernels.c import build
from perfkit.kernels.declare import Implementation, Operation

if TYPE_CHECKING:
    from torch import Tensor

OUT_OF_MEMORY = 1


class BoundCKernel(Protocol):
    """Run a kernel on contiguous tensors: inputs, then outputs, which it fills."""

    def __call__(self, tensors: Sequence[Tensor], scalars: Sequence[int | float]) -> None: ...


def launcher(operation: Operation, implementation: Implementation, dtype: str) -> BoundCKernel:
    """Build and bind `implementation` for `dtype`. Raises `Unavailable` or `RunFailed` (see `build.library`)."""
    source = operation.source_path(implementation)
    function = _symbol(source, dtype, implementation.symbol)
    signature = operation.signature
    pointers = [ctypes.c_void_p] * (len(signature.tensors) + len(signature.outputs))

    def launch(tensors: Sequence[Tensor], scalars: Sequence[int | float]) -> None:
        if function.argtypes is None:  # the same for every call of one operation
            numbers = [ctypes.c_double if isinstance(s, float) else ctypes.c_int64 for s in scalars]
            function.argtypes = [*pointers, *numbers]
        code = function(*[t.data_ptr() for t in tensors], *scalars)
        if code:
            raise _failed(operation, code)

    launch.address = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[attr-defined]  # for calls without Python
    return launch


def _symbol(source: Path, dtype: str, symbol: str) -> ctypes._CFuncPtr:  # type: ignore[name-defined]
    function = getattr(open_library(source, dtype), symbol, None)
    if function is None:
        raise RunFailed(f"{source} defines no function called {symbol}.", "Correct its symbol in the Python file.")
    function.restype = ctypes.c_int
    return function


def open_library(source: Path, dtype: str) -> ctypes.CDLL:
    """The built library of `source`, loaded; one that the cache holds damaged is built again."""
    path = build.library(source, dtype)
    try:
        return _load(path)
    except OSError:
        path.unlink(missing_ok=True)
    try:
        return _load(build.library(source, dtype))
    except OSError as error:
        raise RunFailed(f"The library built from {source} does not load: {error}.", "Try another compiler.") from error


@functools.cache
def _load(path: Path) -> ctypes.CDLL:
    import torch  # noqa: F401  its OpenMP runtime must be there first: ours then joins its threads instead of a second pool

    return ctypes.CDLL(str(path))


def _failed(operation: Operation, code: int) -> RunFailed:
    if code == OUT_OF_MEMORY:
        return RunFailed(f"{operation.qualified_name} found no memory for its scratch space.", "Use a smaller batch.")
    reason = operation.failures.get(code, f"it returned the code {code}, which its family does not explain.")
    return RunFailed(f"{operation.qualified_name} failed: {reason}", "Check the inputs.")
