"""GELU in its tanh form: the smooth gate between the two linear layers of a GPT-2 block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.kernels import Family, Gradient, Operation, rows_and_columns, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs


def forward_reference(x: Tensor) -> Tensor:
    """y = 0.5·x·(1 + tanh u), u = √(2/π)·(x + 0.044715·x³), in plain PyTorch."""
    from torch.nn.functional import gelu

    return gelu(x, approximate="tanh")


def backward_reference(dy: Tensor, x: Tensor) -> Tensor:
    """dx = dy·(0.5·(1 + t) + 0.5·x·(1 − t²)·√(2/π)·(1 + 3·0.044715·x²)), t = tanh u, in plain PyTorch."""
    import torch

    return torch.ops.aten.gelu_backward(dy, x, approximate="tanh")


def forward_cost(call: Call) -> Cost:
    """9 FLOP an element: x³ 2, ·0.044715, + x, ·√(2/π), tanh, + 1, 0.5·x, and their product."""
    x = call.tensor(0)
    return Cost({f"vector_{x.dtype}": 9.0 * x.numel}, x.nbytes, x.numel * ITEM_BYTES[x.dtype])


def backward_cost(call: Call) -> Cost:
    """18 FLOP an element: x² 1, u 4, tanh 1, 0.5·(1 + t) 2, 1 − t² 2, du/dx 3, 0.5·x·(1 − t²)·du/dx 3, sum 1, ·dy 1."""
    dy, x = call.tensor(0), call.tensor(1)
    return Cost({f"vector_{x.dtype}": 18.0 * x.numel}, dy.nbytes + x.nbytes, x.numel * ITEM_BYTES[x.dtype])


def forward_inputs(make: Inputs, N: int) -> tuple[Any, ...]:
    """Draw x (...)."""
    return (make.normal(N, scale=3.0),)


def backward_inputs(make: Inputs, N: int) -> tuple[Any, ...]:
    """Draw dy (...), x (...)."""
    return make.normal(N), make.normal(N, scale=3.0)


def bias_backward_reference(dy: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """dx as gelu_backward gives it, db[m] = Σ over rows of dx[n,m]: the gradient of a bias in x, in plain PyTorch."""
    dx = backward_reference(dy, x)
    return dx, dx.flatten(0, -2).sum(dim=0)


def bias_backward_cost(call: Call) -> Cost:
    """GELU's backward, and 1 FLOP more an element: its sum."""
    x = call.tensor(1)
    both = backward_cost(call)
    flop = {kind: count + x.numel for kind, count in both.flop.items()}
    return Cost(flop, both.bytes_read, both.bytes_written + x.shape[-1] * ITEM_BYTES[x.dtype])


def bias_backward_inputs(make: Inputs, N: int, M: int) -> tuple[Any, ...]:
    """Draw dy (..., M), x (..., M)."""
    return make.normal(N, M), make.normal(N, M, scale=3.0)


def amax_forward_reference(x: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    """The larger of amax and max |y|, and y as gelu_forward gives it, in plain PyTorch."""
    y = forward_reference(x)
    return y.abs().amax().maximum(amax), y


def bias_amax_backward_reference(dy: Tensor, x: Tensor, amax: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The larger of amax and max |dx|, and dx and db as gelu_bias_backward gives them, in plain PyTorch."""
    dx, db = bias_backward_reference(dy, x)
    return dx.abs().amax().maximum(amax), dx, db


def with_amax(cost: Cost, dtype: str, elements: int) -> Cost:
    """2 FLOP more an element, its absolute value and the larger of two; a number in fp32 is read and written."""
    unit, number = f"vector_{dtype}", ITEM_BYTES["fp32"]
    flop = {**cost.flop, unit: cost.flop[unit] + 2.0 * elements}
    return Cost(flop, cost.bytes_read + number, cost.bytes_written + number)


def amax_forward_cost(call: Call) -> Cost:
    """GELU's forward, and 2 FLOP more an element."""
    x = call.tensor(0)
    return with_amax(forward_cost(call), x.dtype, x.numel)


def bias_amax_backward_cost(call: Call) -> Cost:
    """GELU's backward with its sums, and 2 FLOP more an element."""
    x = call.tensor(1)
    return with_amax(bias_backward_cost(call), x.dtype, x.numel)


def amax_forward_inputs(make: Inputs, N: int) -> tuple[Any, ...]:
    """Draw x (...), and an amax that may be the larger one."""
    return *forward_inputs(make, N), make.normal(scale=5.0).float().abs()


def bias_amax_backward_inputs(make: Inputs, N: int, M: int) -> tuple[Any, ...]:
    """Draw dy (..., M), x (..., M), and an amax that may be the larger one."""
    return *bias_backward_inputs(make, N, M), make.normal(scale=3.0).float().abs()


# Below, at and well above the width of a vector.
CASES = ({"N": 13}, {"N": 64}, {"N": 100_003})
ROW_CASES = ({"N": 1, "M": 1}, {"N": 7, "M": 33}, {"N": 70, "M": 100}, {"N": 1000, "M": 264}, {"N": 64, "M": 3072})

FAMILY = Family(
    name="gelu",
    text=__doc__,
    legend={"...": "any dimensions", "N": "elements, or rows", "M": "columns"},
    operations=(
        Operation(
            name="gelu_forward",
            category="elementwise",
            schema="(Tensor x) -> (Tensor y)",
            formula="y = 0.5·x·(1 + tanh u), u = √(2/π)·(x + 0.044715·x³)",
            shapes={"x": "...", "y": "..."},
            reference=forward_reference,
            scalars=lambda x: (x.numel(),),
            inputs=forward_inputs,
            cases=CASES,
            cost=forward_cost,
            gradient=Gradient("gelu_backward"),
            implementations=versions(
                c=("a loop with tanhf", "threads, vectors; tanh by one exponential"),
                cuda=("one element a thread, with tanhf", "16-byte accesses; tanh by one exponential"),
                triton="one pass; tanh by one exponential",
            ),
        ),
        Operation(
            name="gelu_backward",
            category="elementwise",
            schema="(Tensor dy, Tensor x) -> (Tensor dx)",
            formula="dx = dy·(0.5·(1 + t) + 0.5·x·(1 − t²)·√(2/π)·(1 + 3·0.044715·x²)), t = tanh u",
            shapes={"dy": "...", "x": "...", "dx": "..."},
            reference=backward_reference,
            scalars=lambda dy, x: (x.numel(),),
            inputs=backward_inputs,
            cases=CASES,
            cost=backward_cost,
            implementations=versions(
                c=("a loop with tanhf", "threads, vectors; tanh by one exponential"),
                cuda=("one element a thread, with tanhf", "16-byte accesses; tanh by one exponential"),
                triton="one pass; tanh by one exponential",
            ),
        ),
        Operation(
            name="gelu_bias_backward",
            category="elementwise",
            schema="(Tensor dy, Tensor x) -> (Tensor dx, Tensor db)",
            formula="dx as gelu_backward gives it, db[m] = Σ over rows of dx[n,m]: the gradient of a bias in x",
            shapes={"dy": "... M", "x": "... M", "dx": "... M", "db": "M"},
            reference=bias_backward_reference,
            scalars=rows_and_columns,
            inputs=bias_backward_inputs,
            cases=ROW_CASES,
            tolerance={"fp32": 1e-5, "bf16": 2e-2},  # version 1 adds what is rounded to bf16 already
            cost=bias_backward_cost,
            implementations=versions(
                c=("a loop with tanhf, then column by column", "one pass by threads over parts of the rows"),
                cuda=("one pass; 16-byte accesses, sums by parts of the rows, in a fixed order",),
                triton="one pass; sums by parts, in a fixed order",
            ),
        ),
        Operation(
            name="gelu_amax_forward",
            category="elementwise",
            schema="(Tensor x, Tensor(a!) amax) -> (Tensor y)",
            formula="y as gelu_forward gives it, amax = the larger of amax and the largest |y|",
            shapes={"x": "...", "amax": "", "y": "..."},
            dtypes={"amax": "fp32"},
            reference=amax_forward_reference,
            scalars=lambda x, amax: (x.numel(),),
            inputs=amax_forward_inputs,
            cases=CASES,
            cost=amax_forward_cost,
            implementations=versions(
                c=("threads and vectors, then the largest",),
                cuda=("16-byte accesses; the largest while it is in registers",),
                triton="one pass",
            ),
        ),
        Operation(
            name="gelu_bias_amax_backward",
            category="elementwise",
            schema="(Tensor dy, Tensor x, Tensor(a!) amax) -> (Tensor dx, Tensor db)",
            formula="dx and db as gelu_bias_backward gives them, amax = the larger of amax and the largest |dx|",
            shapes={"dy": "... M", "x": "... M", "amax": "", "dx": "... M", "db": "M"},
            dtypes={"amax": "fp32"},
            reference=bias_amax_backward_reference,
            scalars=lambda dy, x, amax: rows_and_columns(dy, x),
            inputs=bias_amax_backward_inputs,
            cases=ROW_CASES,
            cost=bias_amax_backward_cost,
            implementations=versions(
                c=("gelu_bias_backward, then the largest",),
                cuda=("gelu_bias_backward; the largest while it is in registers",),
                triton="one pass; sums by parts, in a fixed order",
            ),
        ),
    ),
)
