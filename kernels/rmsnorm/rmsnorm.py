"""RMSNorm over the last dimension, alone or of a residual sum in one pass; the reciprocal root is kept for backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.kernels import Family, Gradient, Operation, added_to, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs

STATISTICS = {"rstd": "fp32"}
EPS = 1e-5


def forward_reference(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """y, and rstd (…) of each row."""
    rstd = (x.square().mean(-1) + eps).rsqrt()
    return x * rstd.unsqueeze(-1) * weight, rstd


def residual_reference(a: Tensor, b: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """x = a + b, then y and rstd."""
    x = a + b
    return (x, *forward_reference(x, weight, eps))


def backward_reference(dy: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    """dx, and dweight (C), a sum over all rows."""
    h, g = x * rstd.unsqueeze(-1), dy * weight
    dx = rstd.unsqueeze(-1) * (g - h * (g * h).mean(-1, keepdim=True))
    return dx, (dy * h).flatten(0, -2).sum(0)


def gradient_of_a_term(values: Any, results: Any) -> Tensor:
    """Each term of x = a + b gets the gradient of x itself plus the one that comes through the norm."""
    return values["dx"] + results["dx"]


def forward_cost(call: Call) -> Cost:
    """An element 4 FLOP: square, sum, ·rstd, ·weight; a row 4: a division, + eps, √, 1/√."""
    x, weight = call.tensor(0), call.tensor(1)
    rows = x.numel / max(weight.numel, 1)
    flop = {f"vector_{x.dtype}": 4.0 * x.numel + 4.0 * rows}
    return Cost(flop, x.nbytes + weight.nbytes, x.numel * ITEM_BYTES[x.dtype] + rows * ITEM_BYTES["fp32"])


def residual_cost(call: Call) -> Cost:
    """An element 5 FLOP: a + b 1, and RMSNorm's 4; a row RMSNorm's 4. x and y are written."""
    a, b, weight = (call.tensor(i) for i in range(3))
    rows = a.numel / max(weight.numel, 1)
    flop = {f"vector_{a.dtype}": 5.0 * a.numel + 4.0 * rows}
    written = 2 * a.numel * ITEM_BYTES[a.dtype] + rows * ITEM_BYTES["fp32"]
    return Cost(flop, a.nbytes + b.nbytes + weight.nbytes, written)


def backward_cost(call: Call) -> Cost:
    """An element 9 FLOP: x·rstd 1, dy·weight 1, its sum with h 2, dx 3, dweight 2; a row a division."""
    dy, x, weight, rstd = (call.tensor(i) for i in range(4))
    flop = {f"vector_{x.dtype}": 9.0 * x.numel + float(rstd.numel)}
    written = [n * ITEM_BYTES[x.dtype] for n in (x.numel, weight.numel)]
    read = dy.nbytes + x.nbytes + weight.nbytes + rstd.nbytes
    read += sum(nbytes for output, nbytes in enumerate(written) if added_to(call, 4, output))
    return Cost(flop, read, sum(written))


def forward_inputs(make: Inputs, B: int, T: int, C: int) -> tuple[Any, ...]:
    """Draw x (..., C), weight (C)."""
    return make.normal(B, T, C, mean=0.5, scale=2.0), make.normal(C, mean=1.0), EPS


def residual_inputs(make: Inputs, B: int, T: int, C: int) -> tuple[Any, ...]:
    """Draw a (..., C), b (..., C), weight (C)."""
    return make.normal(B, T, C, mean=0.5), make.normal(B, T, C, scale=2.0), make.normal(C, mean=1.0), EPS


def backward_inputs(make: Inputs, B: int, T: int, C: int) -> tuple[Any, ...]:
    """Draw dy (..., C), x (..., C), weight (C), rstd (...)."""
    x, weight, eps = forward_inputs(make, B, T, C)
    _, rstd = forward_reference(x.double(), weight.double(), eps)
    return make.normal(B, T, C), x, weight, rstd.float()


def sizes(x: Tensor, *others: Any) -> tuple[int | float, ...]:
    """N, C and eps of a forward pass over rows of C channels."""
    weight, eps = others[-2:]
    return x.numel() // max(weight.numel(), 1), weight.numel(), float(eps)


# C below the vector width and not a multiple of it, fewer rows than a part, many parts, a wide row.
CASES = (
    {"B": 1, "T": 6, "C": 5},
    {"B": 2, "T": 3, "C": 33},
    {"B": 4, "T": 301, "C": 48},
    {"B": 2, "T": 8, "C": 2048},
)
LONG = {"B": 3, "T": 100, "C": 16384}  # rows of a cluster of blocks, several for each

FAMILY = Family(
    name="rmsnorm",
    text=__doc__,
    legend={"...": "any dimensions; the cases have B batch and T time", "C": "channels"},
    operations=(
        Operation(
            name="rmsnorm_forward",
            category="normalization",
            schema="(Tensor x, Tensor weight, float eps) -> (Tensor y, Tensor rstd)",
            formula="y = x·rstd·weight, rstd = 1/√(mean(x²) + eps)",
            shapes={"x": "... C", "weight": "C", "y": "... C", "rstd": "..."},
            dtypes=STATISTICS,
            reference=forward_reference,
            scalars=sizes,
            inputs=forward_inputs,
            cases=CASES,
            cost=forward_cost,
            gradient=Gradient("rmsnorm_backward"),
            implementations=versions(
                c=("two loops a row", "threads over rows, vectors within"),
                cuda=(
                    "one thread a row",
                    "one warp a row, vectors within",
                    "the row stays in registers and is read once",
                ),
                triton="whole rows in registers, read once",
            ),
        ),
        Operation(
            name="residual_rmsnorm_forward",
            category="normalization",
            schema="(Tensor a, Tensor b, Tensor weight, float eps) -> (Tensor x, Tensor y, Tensor rstd)",
            formula="x = a + b, y = x·rstd·weight, rstd = 1/√(mean(x²) + eps)",
            shapes={"a": "... C", "b": "... C", "weight": "C", "x": "... C", "y": "... C", "rstd": "..."},
            dtypes=STATISTICS,
            reference=residual_reference,
            scalars=sizes,
            inputs=residual_inputs,
            cases=CASES,
            tolerance={"fp32": 1e-5, "bf16": 2e-2},  # the sum is rounded to bf16 before it is normalized
            cost=residual_cost,
            gradient=Gradient(
                "rmsnorm_backward", also={"da": gradient_of_a_term, "db": gradient_of_a_term}, incoming=("x",)
            ),
            implementations=versions(
                c=("a sum, then the norm's loops", "threads over rows, vectors within"),
                cuda=(
                    "one thread a row",
                    "one warp a row, vectors within",
                    "the row stays in registers: x is written and not read again",
                ),
                triton="whole rows in registers: x is written and not read again",
            ),
        ),
        Operation(
            name="rmsnorm_backward",
            category="normalization",
            schema="(Tensor dy, Tensor x, Tensor weight, Tensor rstd) -> (Tensor dx, Tensor dweight)",
            formula="h = x·rstd, g = dy·weight: dx = rstd·(g − h·mean(g·h)), dweight = Σ dy·h",
            shapes={"dy": "... C", "x": "... C", "weight": "C", "rstd": "...", "dx": "... C", "dweight": "C"},
            dtypes=STATISTICS,
            reference=backward_reference,
            scalars=lambda dy, x, weight, rstd: (rstd.numel(), weight.numel()),
            inputs=backward_inputs,
            cases=(*CASES, LONG),
            cost=backward_cost,
            implementations=versions(
                c=(
                    "rows, then columns",
                    "one pass over the rows by threads and vectors; sums over rows by parts, in a fixed order",
                ),
                cuda=(
                    "one thread a row, one thread a column",
                    "one warp a row; parts of the rows for the sums over them",
                    "dx and the sums from one reading of dy and x, kept in registers",
                    "rows come ahead of use by bulk copies; a cluster of blocks shares a long row",
                ),
                triton="one pass; sums over rows by parts, in a fixed order",
                accumulates={"c": (1, 2), "cuda": (2, 3, 4)},
            ),
        ),
    ),
)
