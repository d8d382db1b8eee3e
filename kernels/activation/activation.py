"""Multiply, add, activate in one pass: y = act(x + α·z + bias), as in a LoRA layer or an MLP.

The activations are ReLU, sigmoid, GELU (tanh form) and SiLU. ReLU and sigmoid know their slope from y; GELU and SiLU
compute u = x + α·z + bias again, which costs less than keeping it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost, CostFunction
from perfkit.kernels import Family, Gradient, Operation, rows_and_columns, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs

ALPHA = 0.5
FORMULAS = {
    "relu": "max(u, 0)",
    "sigmoid": "1 / (1 + exp(−u))",
    "gelu": "0.5·u·(1 + tanh(√(2/π)·(u + 0.044715·u³)))",
    "silu": "u / (1 + exp(−u))",
}
# FLOP of act(u), and of act'(u) from what backward is given.
FLOP = {"relu": (1.0, 1.0), "sigmoid": (3.0, 2.0), "gelu": (9.0, 17.0), "silu": (4.0, 7.0)}
FROM_Y = ("relu", "sigmoid")  # their slope follows from y


def activate(name: str, u: Tensor) -> Tensor:
    """Return PyTorch's activation `name`."""
    from torch.nn import functional as F

    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": F.relu,
        "sigmoid": lambda u: u.sigmoid(),
        "gelu": lambda u: F.gelu(u, approximate="tanh"),
        "silu": F.silu,
    }
    return functions[name](u)


def gradient_by(name: str, dy: Tensor, u: Tensor) -> Tensor:
    """dy·act'(u), by PyTorch's own derivative."""
    import torch

    with torch.enable_grad():
        leaf = u.detach().requires_grad_()
        return torch.autograd.grad(activate(name, leaf), leaf, dy)[0]


def forward_reference(name: str) -> Callable[..., Tensor]:
    """Return the reference of the forward with activation `name`: act(x + α·z + bias)."""
    return lambda x, z, alpha, bias: activate(name, x + alpha * z + bias)


def backward_reference(name: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """From y where the slope follows from it, else from the inputs again."""

    def from_y(dy: Tensor, y: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
        dx = dy.where(y > 0, 0.0) if name == "relu" else dy * y * (1 - y)
        return dx, alpha * dx

    def again(dy: Tensor, x: Tensor, z: Tensor, bias: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
        dx = gradient_by(name, dy, x + alpha * z + bias)
        return dx, alpha * dx

    return from_y if name in FROM_Y else again


def forward_cost(name: str) -> CostFunction:
    """Return the cost function of the forward with activation `name`."""

    def cost(call: Call) -> Cost:
        x, z, bias = call.tensor(0), call.tensor(1), call.tensor(3)
        flop = {f"vector_{x.dtype}": (3.0 + FLOP[name][0]) * x.numel}
        return Cost(flop, x.nbytes + z.nbytes + bias.nbytes, x.numel * ITEM_BYTES[x.dtype])

    cost.__doc__ = f"An element {3 + FLOP[name][0]:.0f} FLOP: α·z 1, two sums, {name} {FLOP[name][0]:.0f}."
    return cost


def backward_cost(name: str) -> CostFunction:
    """Return the cost function of the gradient with activation `name`."""
    again = 0.0 if name in FROM_Y else 3.0
    flop = 2.0 + again + FLOP[name][1]

    def cost(call: Call) -> Cost:
        dy = call.tensor(0)
        written = 2 * dy.numel * ITEM_BYTES[dy.dtype]
        return Cost({f"vector_{dy.dtype}": flop * dy.numel}, sum(t.nbytes for t in call.tensors), written)

    cost.__doc__ = f"An element {flop:.0f} FLOP: u {again:.0f}, its slope {FLOP[name][1]:.0f}, ·dy 1, ·α 1."
    return cost


def forward_inputs(make: Inputs, N: int, M: int) -> tuple[Any, ...]:
    """x and z (N, M), alpha, bias (M)."""
    return make.normal(N, M, scale=2.0), make.normal(N, M, scale=2.0), ALPHA, make.normal(M)


def backward_inputs(name: str) -> Callable[..., tuple[Any, ...]]:
    """Return the arguments of the gradient of `name`: dy (N, M), then y, or x, z and bias; alpha last."""

    def inputs(make: Inputs, N: int, M: int) -> tuple[Any, ...]:
        x, z, alpha, bias = forward_inputs(make, N, M)
        dy = make.normal(N, M)
        if name not in FROM_Y:
            return dy, x, z, bias, alpha
        y = forward_reference(name)(x.double(), z.double(), alpha, bias.double())
        return dy, y.to(make.dtype), alpha

    return inputs


def sum_of_rows(values: Any, results: Any) -> Tensor:
    """dbias, from the gradient of what the bias was added to."""
    import torch

    return torch.ops.perfkit.bias_gradient(results["dx"])


IMPLEMENTATIONS = versions(
    c=("a loop", "threads and vectors"),
    cuda=("one element a thread", "16-byte accesses"),
    triton="one pass",
)


def forward(name: str) -> Operation:
    """The operation y = act(x + alpha·z + bias)."""
    return Operation(
        name=f"multiply_add_{name}_forward",
        category="elementwise",
        schema="(Tensor x, Tensor z, float alpha, Tensor bias) -> (Tensor y)",
        formula=f"u = x + alpha·z + bias, y = {FORMULAS[name]}",
        shapes={"x": "... M", "z": "... M", "bias": "M", "y": "... M"},
        reference=forward_reference(name),
        scalars=lambda x, z, alpha, bias: (*rows_and_columns(x), float(alpha)),
        inputs=forward_inputs,
        cases=CASES,
        cost=forward_cost(name),
        gradient=Gradient(f"multiply_add_{name}_backward", also={"dbias": sum_of_rows}),
        implementations=IMPLEMENTATIONS,
    )


def backward(name: str) -> Operation:
    """Its gradient, which gives dx and dz; the bias's is a sum of dx."""
    from_y = name in FROM_Y
    values = ("y",) if from_y else ("x", "z")
    schema = "Tensor y" if from_y else "Tensor x, Tensor z, Tensor bias"
    slope = {"relu": "[y > 0]", "sigmoid": "y·(1 − y)"}.get(name, f"{name}'(x + alpha·z + bias)")
    return Operation(
        name=f"multiply_add_{name}_backward",
        category="elementwise",
        schema=f"(Tensor dy, {schema}, float alpha) -> (Tensor dx, Tensor dz)",
        formula=f"dx = dy·{slope}, dz = alpha·dx; the bias's gradient is bias_gradient(dx)",
        shapes=dict.fromkeys(("dy", *values, "dx", "dz"), "... M") | ({} if from_y else {"bias": "M"}),
        reference=backward_reference(name),
        scalars=lambda dy, *others: (*rows_and_columns(dy), float(others[-1])),
        inputs=backward_inputs(name),
        cases=CASES,
        cost=backward_cost(name),
        implementations=IMPLEMENTATIONS,
    )


# One number, widths that are not a multiple of the vector width, more rows than columns, a wide layer.
CASES = ({"N": 1, "M": 1}, {"N": 7, "M": 33}, {"N": 1000, "M": 100}, {"N": 64, "M": 768})

FAMILY = Family(
    name="activation",
    text=__doc__,
    legend={"...": "any dimensions, N rows", "M": "columns"},
    operations=tuple(make(name) for name in FORMULAS for make in (forward, backward)),
)
