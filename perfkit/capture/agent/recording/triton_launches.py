"""Launches of Triton kernels while steps are recorded: the work of each kind of launch, from the kernel's TTIR.

Triton's launcher is wrapped while steps are recorded, and is itself before and after. Kernels that Inductor generates
have a launcher of their own, and their work from Inductor.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfkit.capture.agent.patches import Patches

_MODULE, _CLASS, _METHOD = "triton.runtime.jit", "JITFunction", "run"
_MOST = 2000  # kinds of launches
_WARP = 32
_DTYPES = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int64": "int64", "int32": "int32",
    "int16": "int16", "int8": "int8", "uint8": "uint8", "bool": "bool", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
}  # fmt: skip


class TritonLaunches:
    """Notes the kinds of launches from `begin` to `end`; `costs` has the work of each."""

    def __init__(self) -> None:
        self._patches = Patches()
        self._kinds: dict[Any, tuple[Any, dict[str, Any], tuple[int, ...]]] = {}

    def begin(self) -> None:
        """Wrap Triton's launcher, where the program has Triton."""
        owner = getattr(sys.modules.get(_MODULE), _CLASS, None)
        if owner is not None:
            self._patches.wrap(owner, _METHOD, self._noting)

    def end(self) -> None:
        """Put the launcher back."""
        self._patches.restore()

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            kernel = original(function, *args, grid=grid, warmup=warmup, **kwargs)
            if kernel is not None and not warmup and len(self._kinds) < _MOST:
                try:
                    self._note(kernel, arguments_of(function, args, kwargs), grid)
                except Exception:  # what is private to Triton and changed: the kernel has no cost then
                    return kernel
            return kernel

        return run

    def _note(self, kernel: Any, named: dict[str, Any], grid: Any) -> None:
        size = tuple(int(n) for n in (grid(named) if callable(grid) else grid))
        known = {name: described(value) for name, value in named.items()}
        self._kinds[id(kernel), size, repr(known)] = (kernel, known, size)

    def costs(self) -> list[list[Any]]:
        """Return for each kind of launch what `own_costs.recorded` gives for a registered kernel."""
        if not self._kinds:
            return []
        from perfkit.cost.ttir import UnknownWork, ttir_cost

        found: list[list[Any]] = []
        for kernel, known, grid in self._kinds.values():
            name, launch = str(kernel.metadata.name), launch_of(kernel, grid)
            given = {key: value for key, value in known.items() if value is not None}
            try:
                cost = ttir_cost(str(kernel.asm["ttir"]), given, grid)
                found.append([name, launch, [dict(cost.flop), cost.bytes_read, cost.bytes_written]])
            except (UnknownWork, ArithmeticError, LookupError, TypeError, ValueError) as error:
                found.append([name, launch, f"the work of {name} is not known from its program: {error}"])
        self._kinds.clear()
        return found


def arguments_of(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a launch by name, defaults included; options such as `num_warps` left out."""
    signature = inspect.signature(function.fn)
    own = {name: value for name, value in kwargs.items() if name in signature.parameters}
    bound = signature.bind_partial(*args, **own)
    bound.apply_defaults()
    return dict(bound.arguments)


def described(value: Any) -> Any:
    """Return a tensor as its shape and dtype, a number as itself, None for anything else."""
    from perfkit.cost.model import TensorSpec

    dtype = _DTYPES.get(str(getattr(value, "dtype", "")).removeprefix("torch."), "")
    if dtype and hasattr(value, "shape"):
        strides = tuple(value.stride()) if callable(getattr(value, "stride", None)) else None
        return TensorSpec(tuple(int(n) for n in value.shape), dtype, strides)
    return value if isinstance(value, int | float) else None


def launch_of(kernel: Any, grid: Sequence[int]) -> dict[str, list[int]]:
    """Return grid and block as a trace records them."""
    warps = int(kernel.metadata.num_warps) * int(getattr(kernel.metadata, "warp_size", _WARP))
    return {"grid": [*grid, 1, 1][:3], "block": [warps, 1, 1]}
