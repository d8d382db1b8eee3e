"""The least work of an operator: FLOP by unit, and bytes read and written.

The model works from a call's name and the shapes and dtypes of its arguments alone, so that it serves a profiler trace,
an FX node and a formula in a test alike. It never touches torch.

Conventions (docs/costs.md has every formula):
- A multiply-add is 2 FLOP; every other arithmetic operation, comparison, or transcendental function (exp, tanh, …)
  counts 1.
- Each distinct input is read once and each output written once; a dimension of stride 0 counts once; a gather reads the
  rows it needs, not the table; an in-place operator reads and writes the same storage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

ITEM_BYTES = {
    "fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
    "complex64": 8, "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of a tensor argument; `strides` in elements where known.

    `value` is that of a single integer where it is known: a benchmark has its inputs, a profile has not. A tensor that
    is not `strided` is sparse, or of a library's own layout: its shape does not give its number of elements.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    value: int | None = None
    strided: bool = True

    @property
    def numel(self) -> int:
        """Number of logical elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of distinct storage: dimensions of stride 0 (broadcast by expand) count once."""
        if not self.strides or 0 not in self.strides:
            return self.numel * ITEM_BYTES[self.dtype]
        distinct = math.prod(size for size, stride in zip(self.shape, self.strides, strict=True) if stride != 0)
        return distinct * ITEM_BYTES[self.dtype]


Argument = TensorSpec | tuple[TensorSpec, ...] | int | float | bool | str | tuple[int, ...] | None


@dataclass(frozen=True)
class Call:
    """One call of an operator: `name` such as `aten::addmm`, and its positional arguments in schema order."""

    name: str
    arguments: tuple[Argument, ...]
    matmul_precision: str = "fp32"  # what fp32 matrix products run in: fp32 or tf32

    def tensor(self, index: int) -> TensorSpec:
        """The tensor at `index`; raises `TypeError` when the argument is not one."""
        argument = self.arguments[index] if index < len(self.arguments) else None
        if not isinstance(argument, TensorSpec):
            raise TypeError(f"{self.name}: argument {index} is not a tensor")
        return argument

    @property
    def tensors(self) -> list[TensorSpec]:
        """All tensor arguments, lists flattened, in order."""
        found: list[TensorSpec] = []
        for argument in self.arguments:
            if isinstance(argument, TensorSpec):
                found.append(argument)
            elif isinstance(argument, tuple):
                found.extend(a for a in argument if isinstance(a, TensorSpec))
        return found


@dataclass(frozen=True)
class Launch(Call):
    """A launch of a GPU kernel: the arguments of the operator around it, where known, its grid and its block."""

    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cost:
    """FLOP by unit (`perfkit.table.RESOURCES`), and minimal bytes read and written."""

    flop: Mapping[str, float] = field(default_factory=dict)
    bytes_read: float = 0.0
    bytes_written: float = 0.0

    @property
    def total_flop(self) -> float:
        """FLOP over all units."""
        return sum(self.flop.values())

    @property
    def matrix_flop(self) -> float:
        """FLOP on matrix units."""
        return sum(flop for unit, flop in self.flop.items() if unit.startswith("matrix"))

    @property
    def bytes(self) -> float:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Cost) -> Cost:
        units = {*self.flop, *other.flop}
        flop = {u: self.flop.get(u, 0.0) + other.flop.get(u, 0.0) for u in sorted(units)}
        return Cost(flop, self.bytes_read + other.bytes_read, self.bytes_written + other.bytes_written)


CostFunction = Callable[[Call], Cost]
