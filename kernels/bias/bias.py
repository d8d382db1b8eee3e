"""A bias: its gradient, the sum over rows, and bias + ReLU in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.kernels import Family, Gradient, Operation, added_to, rows_and_columns, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs


def bias_gradient_reference(dy: Tensor) -> Tensor:
    """db[m] = Σ over rows of dy[n,m], in plain PyTorch."""
    return dy.flatten(0, -2).sum(dim=0)


def forward_reference(x: Tensor, bias: Tensor) -> Tensor:
    """y = max(x + bias, 0), in plain PyTorch."""
    return (x + bias).relu()


def backward_reference(dy: Tensor, y: Tensor) -> Tensor:
    """dx = dy where y > 0, else 0; the bias's gradient is bias_gradient(dx), in plain PyTorch."""
    return dy.where(y > 0, 0.0)


def sum_of_rows(values: Any, results: Any) -> Tensor:
    """dbias, from the gradient of what the bias was added to."""
    import torch

    return torch.ops.perfkit.bias_gradient(results["dx"])


def bias_gradient_cost(call: Call) -> Cost:
    """1 FLOP an element: its sum."""
    dy = call.tensor(0)
    written = dy.shape[-1] * ITEM_BYTES[dy.dtype]
    return Cost({f"vector_{dy.dtype}": float(dy.numel)}, dy.nbytes + written * added_to(call, 1, 0), written)


def forward_cost(call: Call) -> Cost:
    """2 FLOP an element: + bias, and the comparison with 0."""
    x, bias = call.tensor(0), call.tensor(1)
    return Cost({f"vector_{x.dtype}": 2.0 * x.numel}, x.nbytes + bias.nbytes, x.numel * ITEM_BYTES[x.dtype])


def backward_cost(call: Call) -> Cost:
    """1 FLOP an element: the comparison with 0."""
    dy, y = call.tensor(0), call.tensor(1)
    return Cost({f"vector_{y.dtype}": float(y.numel)}, dy.nbytes + y.nbytes, y.numel * ITEM_BYTES[y.dtype])


def bias_gradient_inputs(make: Inputs, N: int, M: int) -> tuple[Any, ...]:
    """Draw dy (..., M)."""
    return (make.normal(N, M),)


def forward_inputs(make: Inputs, N: int, M: int) -> tuple[Any, ...]:
    """Draw x (..., M), bias (M)."""
    return make.normal(N, M), make.normal(M)


def backward_inputs(make: Inputs, N: int, M: int) -> tuple[Any, ...]:
    """Draw dy (..., M), y (..., M)."""
    return make.normal(N, M), make.normal(N, M).relu()


# One number, widths that are not a multiple of the vector width, many rows, GPT-2's width.
CASES = ({"N": 1, "M": 1}, {"N": 7, "M": 33}, {"N": 1000, "M": 100}, {"N": 64, "M": 768})

FAMILY = Family(
    name="bias",
    text=__doc__,
    legend={"...": "any dimensions, N rows", "M": "columns"},
    operations=(
        Operation(
            name="bias_gradient",
            category="reduction",
            schema="(Tensor dy) -> (Tensor db)",
            formula="db[m] = Σ over rows of dy[n,m]",
            shapes={"dy": "... M", "db": "M"},
            reference=bias_gradient_reference,
            scalars=rows_and_columns,
            inputs=bias_gradient_inputs,
            cases=CASES,
            cost=bias_gradient_cost,
            implementations=versions(
                c=("column by column", "vectors along rows, threads over parts in a fixed order"),
                cuda=(
                    "one thread a column",
                    "parts of the rows, summed in a fixed order",
                    "16-byte accesses, four rows of a thread under way at once",
                ),
                triton="sums of parts of the rows, in a fixed order",
                accumulates={"c": (1, 2), "cuda": (2, 3)},
            ),
        ),
        Operation(
            name="bias_relu_forward",
            category="elementwise",
            schema="(Tensor x, Tensor bias) -> (Tensor y)",
            formula="y = max(x + bias, 0)",
            shapes={"x": "... M", "bias": "M", "y": "... M"},
            reference=forward_reference,
            scalars=rows_and_columns,
            inputs=forward_inputs,
            cases=CASES,
            cost=forward_cost,
            gradient=Gradient("bias_relu_backward", also={"dbias": sum_of_rows}),
            implementations=versions(
                c=("a loop", "threads and vectors"),
                cuda=("one element a thread", "16-byte accesses"),
                triton="one pass",
            ),
        ),
        Operation(
            name="bias_relu_backward",
            category="elementwise",
            schema="(Tensor dy, Tensor y) -> (Tensor dx)",
            formula="dx = dy where y > 0, else 0; the bias's gradient is bias_gradient(dx)",
            shapes={"dy": "... M", "y": "... M", "dx": "... M"},
            reference=backward_reference,
            scalars=lambda dy, y: (y.numel(),),
            inputs=backward_inputs,
            cases=CASES,
            cost=backward_cost,
            implementations=versions(
                c=("a loop", "threads and vectors"),
                cuda=("one element a thread", "16-byte accesses"),
                triton="one pass",
            ),
        ),
    ),
)
