"""Products of fp8 by PyTorch's operator, into given tensors. Shapes are those of `fp8_linear.py`.

On a CPU the operator multiplies the same numbers in fp32 and rounds once.
"""

from __future__ import annotations

import torch
from torch import Tensor


def forward(x8: Tensor, w8: Tensor, scale_x: Tensor, scale_w: Tensor, y: Tensor) -> None:
    """Compute `fp8_linear_forward`."""
    _product(x8, w8, scale_x, scale_w, y, fast=True)


def bias_forward(x8: Tensor, w8: Tensor, scale_x: Tensor, scale_w: Tensor, bias: Tensor, y: Tensor) -> None:
    """Compute `fp8_linear_bias_forward`."""
    _product(x8, w8, scale_x, scale_w, y, bias, fast=True)


def backward_input(dy8: Tensor, w8t: Tensor, scale_dy: Tensor, scale_w: Tensor, dx: Tensor) -> None:
    """Compute `fp8_linear_backward_input`."""
    _product(dy8, w8t, scale_dy, scale_w, dx)


def backward_weight(dy8t: Tensor, x8t: Tensor, scale_dy: Tensor, scale_x: Tensor, dweight: Tensor) -> None:
    """Compute `fp8_linear_backward_weight`."""
    _product(dy8t, x8t, scale_dy, scale_x, dweight)


def _product(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out: Tensor, bias: Tensor | None = None, fast: bool = False
) -> None:
    torch._scaled_mm(
        a, b.t(), scale_a=scale_a, scale_b=scale_b, bias=bias, out_dtype=out.dtype, use_fast_accum=fast, out=out
    )  # fmt: skip
