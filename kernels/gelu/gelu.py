"""GELU in its tanh form: the smooth gate between the two linear layers of a GPT-2 block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.kernels import Family, Gradient, Implementation, Operation

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs


def forward_reference(x: Tensor) -> Tensor:
    from torch.nn.functional import gelu

    return gelu(x, approximate="tanh")


def backward_reference(dy: Tensor, x: Tensor) -> Tensor:
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
    return (make.normal(N, scale=3.0),)


def backward_inputs(make: Inputs, N: int) -> tuple[Any, ...]:
    return make.normal(N), make.normal(N, scale=3.0)


# Below, at and well above the width of a vector.
CASES = ({"N": 13}, {"N": 64}, {"N": 100_003})

FAMILY = Family(
    name="gelu",
    text=__doc__,
    legend={"...": "any dimensions", "N": "elements"},
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
            implementations=(
                Implementation(1, "c", "gelu.c", "gelu_forward_v1", "a loop with tanhf"),
                Implementation(2, "c", "gelu.c", "gelu_forward_v2", "threads, vectors; tanh by one exponential"),
                Implementation(1, "cuda", "gelu.cu", "gelu_forward_v1", "one element a thread, with tanhf"),
                Implementation(2, "cuda", "gelu.cu", "gelu_forward_v2", "16-byte accesses; tanh by one exponential"),
                Implementation(1, "triton", "gelu_triton.py", "gelu_forward", "one pass; tanh by one exponential"),
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
            implementations=(
                Implementation(1, "c", "gelu.c", "gelu_backward_v1", "a loop with tanhf"),
                Implementation(2, "c", "gelu.c", "gelu_backward_v2", "threads, vectors; tanh by one exponential"),
                Implementation(1, "cuda", "gelu.cu", "gelu_backward_v1", "one element a thread, with tanhf"),
                Implementation(2, "cuda", "gelu.cu", "gelu_backward_v2", "16-byte accesses; tanh by one exponential"),
                Implementation(1, "triton", "gelu_triton.py", "gelu_backward", "one pass; tanh by one exponential"),
            ),
        ),
    ),
)
