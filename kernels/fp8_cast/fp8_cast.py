"""Tensors in fp8 with one scale each: the largest absolute value, and the cast to both layouts in one pass.

A product of fp8 wants both operands with the inner dimension contiguous, so that training needs each tensor as it lies
for one product, and transposed for another. The scale is that of the tensor now: its largest absolute value over the
largest number of the format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.kernels import Family, Operation, versions

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from perfkit.kernels.checking import Inputs

LEAST = 2.0**-100  # of a largest value: its scale is not 0


def amax_reference(x: Tensor, amax: Tensor) -> Tensor:
    """The larger of amax and max |x|, in plain PyTorch."""
    return x.abs().amax().maximum(amax)


def cast_reference(x: Tensor, amax: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x8 in e4m3, its transpose and the scale, in plain PyTorch."""
    import torch

    return _cast(x, amax, torch.float8_e4m3fn)


def gradient_cast_reference(dy: Tensor, amax: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """dy8 in e5m2, its transpose and the scale, in plain PyTorch."""
    import torch

    return _cast(dy, amax, torch.float8_e5m2)


def _cast(x: Tensor, amax: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of `dtype` in the type of `x`. Scale and quotient in fp32: the last bits say which number is nearer.

    The divisor is a tensor on the device: by a number, PyTorch's CUDA kernel multiplies by its reciprocal.
    """
    import torch

    most = torch.finfo(dtype).max
    scale = amax.float().clamp(min=LEAST) / torch.tensor(most, device=amax.device)
    rounded = (x.float() * scale.reciprocal()).clamp(-most, most).to(dtype).to(x.dtype)
    return rounded, rounded.t(), scale


def amax_cost(call: Call) -> Cost:
    """2 FLOP an element: its absolute value, and the larger of two."""
    x = call.tensor(0)
    return Cost({f"vector_{x.dtype}": 2.0 * x.numel}, x.nbytes + ITEM_BYTES["fp32"], ITEM_BYTES["fp32"])


def cast_cost(call: Call) -> Cost:
    """4 FLOP an element: the quotient, two limits, the rounding. One byte is written twice."""
    x = call.tensor(0)
    one = ITEM_BYTES["fp32"]
    return Cost({f"vector_{x.dtype}": 4.0 * x.numel}, x.nbytes + one, 2.0 * x.numel * ITEM_BYTES["fp8"] + one)


def amax_inputs(make: Inputs, N: int) -> tuple[Any, ...]:
    """Draw x (N), and an amax that may be the larger one."""
    return make.normal(N), make.normal(scale=3.0).float().abs()


def cast_inputs(make: Inputs, N: int, M: int) -> tuple[Any, ...]:
    """Draw x (N, M) of many sizes, the smallest too small for a normal number of the format, and its amax."""
    x = make.normal(N, M) * (make.normal(N, M, scale=3.0).float().exp2() * 0.02).to(make.dtype)
    return x, x.abs().amax().float()


CAST_CASES = ({"N": 1, "M": 1}, {"N": 7, "M": 33}, {"N": 70, "M": 100}, {"N": 128, "M": 256}, {"N": 272, "M": 144})
EXACT = {"fp32": 1e-7, "bf16": 1e-7}  # the same numbers to the last bit
SHAPES = {"amax": "", "scale": ""}


FAMILY = Family(
    name="fp8_cast",
    text=__doc__,
    legend={"...": "any dimensions", "N": "rows, or elements", "M": "columns"},
    operations=(
        Operation(
            name="fp8_amax",
            category="reduction",
            schema="(Tensor x, Tensor(a!) amax) -> ()",
            formula="amax = the larger of amax and the largest |x|",
            shapes={"x": "...", "amax": ""},
            dtypes={"amax": "fp32"},
            reference=amax_reference,
            scalars=lambda x, amax: (x.numel(),),
            inputs=amax_inputs,
            cases=({"N": 1}, {"N": 13}, {"N": 64}, {"N": 100_003}),
            tolerance=EXACT,
            cost=amax_cost,
            implementations=versions(
                c=("a loop in threads, which compares bits",),
                cuda=("16-byte accesses, one comparison in memory a block",),
                triton="one pass, one comparison in memory a block",
            ),
        ),
        Operation(
            name="fp8_cast",
            category="copy",
            schema="(Tensor x, Tensor amax) -> (Tensor x8, Tensor x8t, Tensor scale)",
            formula="scale = amax / 448, x8 = x / scale rounded to e4m3, x8t = its transpose",
            shapes={"x": "N M", "x8": "N M", "x8t": "M N", **SHAPES},
            dtypes={"amax": "fp32", "x8": "e4m3", "x8t": "e4m3", "scale": "fp32"},
            reference=cast_reference,
            scalars=lambda x, amax: tuple(x.shape),
            inputs=cast_inputs,
            cases=CAST_CASES,
            tolerance=EXACT,
            cost=cast_cost,
            implementations=versions(
                c=("tiles in threads, both layouts while a tile is in the cache",),
                cuda=("one element a thread", "tiles by way of shared memory, 16-byte accesses to all tensors"),
                triton="tiles, transposed on the chip",
            ),
        ),
        Operation(
            name="fp8_gradient_cast",
            category="copy",
            schema="(Tensor dy, Tensor amax) -> (Tensor dy8, Tensor dy8t, Tensor scale)",
            formula="scale = amax / 57344, dy8 = dy / scale rounded to e5m2, dy8t = its transpose",
            shapes={"dy": "N M", "dy8": "N M", "dy8t": "M N", **SHAPES},
            dtypes={"amax": "fp32", "dy8": "e5m2", "dy8t": "e5m2", "scale": "fp32"},
            reference=gradient_cast_reference,
            scalars=lambda dy, amax: tuple(dy.shape),
            inputs=cast_inputs,
            cases=CAST_CASES,
            tolerance=EXACT,
            cost=cast_cost,
            implementations=versions(
                c=("tiles in threads, both layouts while a tile is in the cache",),
                cuda=("one element a thread", "tiles by way of shared memory, 16-byte accesses to all tensors"),
                triton="tiles, transposed on the chip",
            ),
        ),
    ),
)
