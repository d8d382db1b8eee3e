"""Softmax over whole rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.kernels import Family, Gradient, Operation, rows_and_columns, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs


def forward_reference(x: Tensor) -> Tensor:
    """y[n,m] = exp(x[n,m]) / Σ over m' of exp(x[n,m']), in plain PyTorch."""
    return x.softmax(dim=-1)


def backward_reference(dy: Tensor, y: Tensor) -> Tensor:
    """dx[n,m] = y[n,m]·(dy[n,m] − Σ over m' of dy[n,m']·y[n,m']), in plain PyTorch."""
    return y * (dy - (dy * y).sum(dim=-1, keepdim=True))


def forward_cost(call: Call) -> Cost:
    """5 FLOP an element: max, − max, exp, sum, division."""
    x = call.tensor(0)
    return Cost({f"vector_{x.dtype}": 5.0 * x.numel}, x.nbytes, x.numel * ITEM_BYTES[x.dtype])


def backward_cost(call: Call) -> Cost:
    """4 FLOP an element: dy·y, its sum, − sum, ·y."""
    dy, y = call.tensor(0), call.tensor(1)
    return Cost({f"vector_{y.dtype}": 4.0 * y.numel}, dy.nbytes + y.nbytes, y.numel * ITEM_BYTES[y.dtype])


def forward_inputs(make: Inputs, N: int, M: int) -> tuple[Any, ...]:
    """Draw x (..., M)."""
    return (make.normal(N, M, scale=4.0),)


def backward_inputs(make: Inputs, N: int, M: int) -> tuple[Any, ...]:
    """Draw dy (..., M), y (..., M)."""
    y = forward_reference(make.normal(N, M, scale=4.0).double())
    return make.normal(N, M), y.to(make.dtype)


# One column, rows that are not a multiple of the vector width, a row of several blocks, GPT-2's vocabulary.
CASES = ({"N": 3, "M": 1}, {"N": 5, "M": 33}, {"N": 64, "M": 1024}, {"N": 2, "M": 50257})

FAMILY = Family(
    name="softmax",
    text=__doc__,
    legend={"...": "any dimensions, N rows", "M": "columns"},
    operations=(
        Operation(
            name="softmax_forward",
            category="softmax",
            schema="(Tensor x) -> (Tensor y)",
            formula="y[n,m] = exp(x[n,m]) / Σ over m' of exp(x[n,m'])",
            shapes={"x": "... M", "y": "... M"},
            reference=forward_reference,
            scalars=rows_and_columns,
            inputs=forward_inputs,
            cases=CASES,
            cost=forward_cost,
            gradient=Gradient("softmax_backward"),
            implementations=versions(
                c=("three loops a row", "threads over rows, vectors within"),
                cuda=(
                    "one thread a row",
                    "one block a row, 16-byte accesses wherever it starts",
                    "the row is read once: in registers, or over a cluster's shared memory",
                ),
                triton="short rows in registers, long ones twice through the cache",
            ),
        ),
        Operation(
            name="softmax_backward",
            category="softmax",
            schema="(Tensor dy, Tensor y) -> (Tensor dx)",
            formula="dx[n,m] = y[n,m]·(dy[n,m] − Σ over m' of dy[n,m']·y[n,m'])",
            shapes={"dy": "... M", "y": "... M", "dx": "... M"},
            reference=backward_reference,
            scalars=rows_and_columns,
            inputs=backward_inputs,
            cases=CASES,
            cost=backward_cost,
            # dy − Σ loses digits where y is near 1, and most of the result is far smaller than that.
            tolerance={"fp32": 5e-5, "bf16": 1e-2},
            implementations=versions(
                c=("two loops a row", "threads over rows, vectors within"),
                cuda=(
                    "one thread a row",
                    "one block a row, 16-byte accesses wherever it starts",
                    "both rows are read once: in registers, or over a cluster's shared memory",
                ),
                triton="short rows in registers, long ones twice through the cache",
            ),
        ),
    ),
)
