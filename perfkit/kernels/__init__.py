"""The kernel engine: finds the families in `kernels/`, builds, checks and registers their operations with PyTorch.

This module and the catalog need neither torch nor a compiler; loading, running and checking need both.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.errors import Unavailable
from perfkit.kernels.cuda.early import overlapping
from perfkit.kernels.declare import Family, Gradient, Implementation, Operation, added_to, versions
from perfkit.kernels.families import catalog, cost_model, find
from perfkit.kernels.languages import device_unavailable
from perfkit.kernels.selection import use_version
from perfkit.kernels.shapes import rows_and_columns

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.bound import Bound
    from perfkit.kernels.checking import CheckResult

__all__ = [
    "Family", "Gradient", "Implementation", "Operation",
    "added_to", "bind", "catalog", "check", "cost_model", "direct", "find", "load",
    "overlapping", "rows_and_columns", "unavailable", "use_version", "versions",
]  # fmt: skip

_NO_TORCH = "PyTorch is not installed, and the kernels are operators of PyTorch."
_GET_TORCH = "Install it: pip install 'perfkit[run]'."


def unavailable(device: str = "cpu") -> str | None:
    """One sentence why no kernel of the catalog can run on `device` ("cpu", "cuda", "cuda:0"), or None."""
    if importlib.util.find_spec("torch") is None:
        return f"{_NO_TORCH} {_GET_TORCH}"
    return device_unavailable(catalog(), device.split(":")[0])


def load(extra_dirs: Iterable[str | Path] = ()) -> dict[str, Implementation]:
    """Build and register every operation as `torch.ops.perfkit.NAME`; see `perfkit.kernels.register.load`."""
    _need_torch()
    from perfkit.kernels.register import load as load_and_register

    return load_and_register(extra_dirs)


def direct(name: str) -> Callable[..., Any]:
    """A loaded operator without PyTorch's dispatcher, but under a profiler; see `perfkit.kernels.register.direct`."""
    _need_torch()
    from perfkit.kernels.register import direct as called_directly

    return called_directly(name)


def bind(
    operation: Operation | str,
    arguments: Sequence[Any],
    outputs: Sequence[Tensor] = (),
    accumulate: Collection[str] = (),
) -> Bound:
    """Bind an operation to inputs and outputs in memory of your own; see `perfkit.kernels.bound.bind`."""
    _need_torch()
    from perfkit.kernels.bound import bind as bind_to

    return bind_to(operation, arguments, outputs, accumulate)


def check(
    operation: Operation | str,
    version: int | None = None,
    dtype: str = "fp32",
    sizes: Mapping[str, int] | None = None,
    inputs: Sequence[Any] | None = None,
    seed: int | None = None,
    extra_dirs: Iterable[str | Path] = (),
    device: str = "cpu",
    language: str | None = None,
) -> list[CheckResult]:
    """Compare one implementation with its reference in fp64; see `perfkit.kernels.checking.check`."""
    _need_torch()
    from perfkit.kernels.checking import check as run_check

    return run_check(operation, version, dtype, sizes, inputs, seed, extra_dirs, device, language)


def _need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise Unavailable(_NO_TORCH, _GET_TORCH)
