"""The executor `perfkit_llmc` itself: how a symbol of the trace is claimed, and whether a kernel fits its tensors.

Import it only after `support.load()` and `kernels.load()`: it needs both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from thunder.core import dtypes
from thunder.core.proxies import TensorProxy
from thunder.extend import OperatorExecutor, register_executor

from perfkit import kernels
from perfkit.backends.thunder.executor.shapes import META
from perfkit.kernels.languages import candidates

NAME = "perfkit_llmc"
# perfkit's names of the precisions a kernel may exist in.
DTYPES = {dtypes.float64: "fp64", dtypes.float32: "fp32", dtypes.bfloat16: "bf16", dtypes.float16: "fp16"}

executor = OperatorExecutor(NAME, version="1")
register_executor(executor)

# Symbol name in the model → its two kernels, in the order of the table above.
KERNELS: dict[str, tuple[str, str]] = {}


def kernel_symbol(name: str) -> Any:
    """Register the operator `torch.ops.perfkit.NAME` as a symbol of the executor."""
    return executor.register_operator(name, meta=META[name], fn=kernels.direct(name))


def composite(function: Callable[..., Any], plain: Any) -> Any:
    """A symbol in the place of the model's `function`; `plain` is the same in Thunder's operators, its fallback."""
    return executor.register_operator(function.__name__, like=plain, fn=function, replaces=function)


def claim(
    symbol: Any,
    kernel: str,
    applies: Callable[..., bool],
    forward: Callable[..., Any],
    training: Callable[..., Any],
    *,
    backward: str = "",
) -> None:
    """Let `symbol` run by `forward` in inference and by `training` where a gradient is asked for, if `applies`.

    `backward` names the kernel of its gradient, where that is not `kernel`'s own.
    """
    KERNELS[symbol.name] = (f"{kernel}_forward", backward or f"{kernel}_backward")
    executor.register_implementation(symbol, checker=applies, execution_transform=forward, grad_transform=training)


# A user's own kernel directories, searched besides the built-in catalog.
_directories: list[str] = []


def use_catalog(extra_directories: Sequence[str]) -> None:
    """Let the checkers ask the built-in catalog and a user's own directories, as `kernels.load` took them."""
    _directories[:] = extra_directories
    _exists.cache_clear()


@functools.cache
def _exists(kernel: str, device: str, dtype: str) -> bool:
    """Return whether a kernel, or both directions of one, are written for a device and a precision."""
    found = (
        [kernels.find(kernel, _directories)]
        if kernel in META
        else [kernels.find(f"{kernel}_{direction}", _directories) for direction in ("forward", "backward")]
    )
    return all(candidates(operation, device, dtype) for operation in found)


def fits(kernel: str, *tensors: Any) -> bool:
    """Return whether all `tensors` are tensors of one precision and device that the kernel exists for."""
    if not all(isinstance(t, TensorProxy) for t in tensors):
        return False
    first = tensors[0]
    same = all(t.dtype == first.dtype and t.device == first.device for t in tensors)
    return same and first.dtype in DTYPES and _exists(kernel, first.device.type, DTYPES[first.dtype])
