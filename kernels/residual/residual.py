"""The residual connection: a sum, alone or with the LayerNorm that follows it in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.kernels import Family, Gradient, Operation, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs

EPS = 1e-5


def residual_reference(a: Tensor, b: Tensor) -> Tensor:
    """y = a + b, in plain PyTorch."""
    return a + b


def layernorm_reference(
    a: Tensor, b: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x = a + b, and LayerNorm of it with its statistics."""
    import torch

    x = a + b
    y, mean, rstd = torch.native_layer_norm(x, weight.shape, weight, bias, eps)
    return x, y, mean.squeeze(-1), rstd.squeeze(-1)


def gradient_of_a_term(values: Any, results: Any) -> Tensor:
    """Each term of x = a + b gets the gradient of x itself plus the one that comes through the LayerNorm."""
    return values["dx"] + results["dx"]


def residual_cost(call: Call) -> Cost:
    """1 FLOP an element."""
    a, b = call.tensor(0), call.tensor(1)
    return Cost({f"vector_{a.dtype}": float(a.numel)}, a.nbytes + b.nbytes, a.numel * ITEM_BYTES[a.dtype])


def layernorm_cost(call: Call) -> Cost:
    """An element 8 FLOP: a + b 1, and LayerNorm's 7; a row LayerNorm's 5. x and y are written, and both statistics."""
    a, b, weight, bias = (call.tensor(i) for i in range(4))
    rows = a.numel / max(weight.numel, 1)
    flop = {f"vector_{a.dtype}": 8.0 * a.numel + 5.0 * rows}
    written = 2 * a.numel * ITEM_BYTES[a.dtype] + 2 * rows * ITEM_BYTES["fp32"]
    return Cost(flop, a.nbytes + b.nbytes + weight.nbytes + bias.nbytes, written)


def residual_inputs(make: Inputs, N: int) -> tuple[Any, ...]:
    """Draw a (...), b (...)."""
    return make.normal(N), make.normal(N)


def layernorm_inputs(make: Inputs, B: int, T: int, C: int) -> tuple[Any, ...]:
    """Rows whose numbers differ: in one of five like numbers, rounding the sum would be all that is left of it."""
    import torch

    branch = make.normal(B, T, C, scale=2.0)
    branch = branch + torch.linspace(-6.0, 6.0, C, device=branch.device)
    terms = make.normal(B, T, C, mean=0.5), branch.to(make.dtype)
    return *terms, make.normal(C, mean=1.0), make.normal(C), EPS


FAMILY = Family(
    name="residual",
    text=__doc__,
    legend={"...": "any dimensions; the cases have B batch and T time", "C": "channels", "N": "elements"},
    operations=(
        Operation(
            name="residual_forward",
            category="elementwise",
            schema="(Tensor a, Tensor b) -> (Tensor y)",
            formula="y = a + b",
            shapes={"a": "...", "b": "...", "y": "..."},
            reference=residual_reference,
            scalars=lambda a, b: (a.numel(),),
            inputs=residual_inputs,
            cases=({"N": 13}, {"N": 64}, {"N": 100_003}),
            cost=residual_cost,
            implementations=versions(
                c=("a loop", "threads and vectors"),
                cuda=("one element a thread", "16-byte accesses"),
                triton="one pass",
            ),
        ),
        Operation(
            name="residual_layernorm_forward",
            category="normalization",
            schema="(Tensor a, Tensor b, Tensor weight, Tensor bias, float eps)"
            " -> (Tensor x, Tensor y, Tensor mean, Tensor rstd)",
            formula="x = a + b, y = (x − mean)·rstd·weight + bias, rstd = 1/√(mean((x − mean)²) + eps)",
            shapes={"a": "... C", "b": "... C", "weight": "C", "bias": "C"}
            | {"x": "... C", "y": "... C", "mean": "...", "rstd": "..."},
            dtypes={"mean": "fp32", "rstd": "fp32"},
            reference=layernorm_reference,
            scalars=lambda a, b, weight, bias, eps: (a.numel() // max(weight.numel(), 1), weight.numel(), float(eps)),
            inputs=layernorm_inputs,
            cases=(
                {"B": 1, "T": 6, "C": 5},
                {"B": 2, "T": 3, "C": 33},
                {"B": 3, "T": 37, "C": 100},
                {"B": 2, "T": 16, "C": 768},
            ),
            tolerance={"fp32": 1e-5, "bf16": 3e-2},  # the sum is rounded to bf16 before it is normalized
            cost=layernorm_cost,
            gradient=Gradient(
                "layernorm_backward", also={"da": gradient_of_a_term, "db": gradient_of_a_term}, incoming=("x",)
            ),
            implementations=versions(
                c=("a sum, then LayerNorm's loops", "threads over rows, vectors within"),
                cuda=(
                    "one thread a row",
                    "one warp a row, vectors within",
                    "the row stays in registers and is read once",
                ),
                triton="whole rows in registers: x is written and not read again",
            ),
        ),
    ),
)
