"""LayerNorm over the last dimension, keeping mean and reciprocal deviation for the backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.kernels import Family, Gradient, Operation, added_to, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs

STATISTICS = {"mean": "fp32", "rstd": "fp32"}
EPS = 1e-5


def forward_reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """y = (x − mean)·rstd·weight + bias, rstd = 1/√(mean((x − mean)²) + eps), in plain PyTorch."""
    import torch

    y, mean, rstd = torch.native_layer_norm(x, weight.shape, weight, bias, eps)
    return y, mean.squeeze(-1), rstd.squeeze(-1)


def backward_reference(
    dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `layernorm_backward` in plain PyTorch."""
    import torch

    return torch.ops.aten.native_layer_norm_backward(
        dy, x, weight.shape, mean.unsqueeze(-1), rstd.unsqueeze(-1), weight, weight, [True, True, True]
    )


def forward_cost(call: Call) -> Cost:
    """An element 7 FLOP: sum, x − mean, square, sum, ·rstd, ·weight, + bias; a row 5: two divisions, + eps, √, 1/√."""
    x, weight, bias = call.tensor(0), call.tensor(1), call.tensor(2)
    rows = x.numel / max(weight.numel, 1)
    flop = {f"vector_{x.dtype}": 7.0 * x.numel + 5.0 * rows}
    written = x.numel * ITEM_BYTES[x.dtype] + 2 * rows * ITEM_BYTES["fp32"]
    return Cost(flop, x.nbytes + weight.nbytes + bias.nbytes, written)


def backward_cost(call: Call) -> Cost:
    """An element 13 FLOP: normalised x 2, dy·weight 1, its two sums 3, dx 4, dweight 2, dbias 1; a row 2 divisions."""
    dy, x, weight, mean, rstd = (call.tensor(i) for i in range(5))
    flop = {f"vector_{x.dtype}": 13.0 * x.numel + 2.0 * mean.numel}
    written = [n * ITEM_BYTES[x.dtype] for n in (x.numel, weight.numel, weight.numel)]
    read = dy.nbytes + x.nbytes + weight.nbytes + mean.nbytes + rstd.nbytes
    read += sum(nbytes for output, nbytes in enumerate(written) if added_to(call, 5, output))
    return Cost(flop, read, sum(written))


def forward_inputs(make: Inputs, B: int, T: int, C: int) -> tuple[Any, ...]:
    """Draw x (..., C), weight (C), bias (C)."""
    return make.normal(B, T, C, mean=0.5, scale=2.0), make.normal(C, mean=1.0), make.normal(C), EPS


def backward_inputs(make: Inputs, B: int, T: int, C: int) -> tuple[Any, ...]:
    """Draw dy (..., C), x (..., C), weight (C), mean (...), rstd (...)."""
    x, weight, bias, eps = forward_inputs(make, B, T, C)
    _, mean, rstd = forward_reference(x.double(), weight.double(), bias.double(), eps)
    return make.normal(B, T, C), x, weight, mean.float(), rstd.float()


# C below the vector width and not a multiple of it, fewer rows than a part, many parts, GPT-2's width.
CASES = (
    {"B": 1, "T": 6, "C": 5},
    {"B": 2, "T": 3, "C": 33},
    {"B": 3, "T": 37, "C": 100},
    {"B": 4, "T": 301, "C": 48},
    {"B": 2, "T": 16, "C": 768},
)

FAMILY = Family(
    name="layernorm",
    text=__doc__,
    legend={"...": "any dimensions; the cases have B batch and T time", "C": "channels"},
    operations=(
        Operation(
            name="layernorm_forward",
            category="normalization",
            schema="(Tensor x, Tensor weight, Tensor bias, float eps) -> (Tensor y, Tensor mean, Tensor rstd)",
            formula="y = (x − mean)·rstd·weight + bias, rstd = 1/√(mean((x − mean)²) + eps)",
            shapes={"x": "... C", "weight": "C", "bias": "C", "y": "... C", "mean": "...", "rstd": "..."},
            dtypes=STATISTICS,
            reference=forward_reference,
            scalars=lambda x, weight, bias, eps: (x.numel() // max(weight.numel(), 1), weight.numel(), float(eps)),
            inputs=forward_inputs,
            cases=CASES,
            cost=forward_cost,
            gradient=Gradient("layernorm_backward"),
            implementations=versions(
                c=("three loops a row", "threads over rows, vectors within"),
                cuda=(
                    "one thread a row",
                    "one warp a row, vectors within",
                    "the row stays in registers and is read once",
                ),
                triton="whole rows in registers, read once",
            ),
        ),
        Operation(
            name="layernorm_backward",
            category="normalization",
            schema="(Tensor dy, Tensor x, Tensor weight, Tensor mean, Tensor rstd)"
            " -> (Tensor dx, Tensor dweight, Tensor dbias)",
            formula="h = (x − mean)·rstd, g = dy·weight: dx = rstd·(g − mean(g) − h·mean(g·h)), "
            "dweight = Σ dy·h, dbias = Σ dy",
            shapes={"dy": "... C", "x": "... C", "weight": "C", "mean": "...", "rstd": "..."}
            | {"dx": "... C", "dweight": "C", "dbias": "C"},
            dtypes=STATISTICS,
            reference=backward_reference,
            scalars=lambda dy, x, weight, mean, rstd: (mean.numel(), weight.numel()),
            inputs=backward_inputs,
            cases=CASES,
            tolerance={"fp32": 2e-5, "bf16": 1e-2},  # version 1 adds up to 16,384 rows one after another
            cost=backward_cost,
            implementations=versions(
                c=(
                    "rows, then columns",
                    "one pass over the rows by threads and vectors; sums over rows by parts, in a fixed order",
                ),
                cuda=(
                    "one thread a row, one thread a column",
                    "one warp a row; parts of the rows for the sums over them",
                    "dx and both sums from one reading of dy and x, kept in registers",
                ),
                triton="one pass; sums over rows by parts, in a fixed order",
                accumulates={"c": (1, 2), "cuda": (2, 3), "triton": (1,)},
                triton_fastest_in=("fp32",),
            ),
        ),
    ),
)
