"""Products of fp8 by cuBLASLt, with what follows in its epilogue. Shapes are those of `fp8_linear.py`.

Where the library has no algorithm for a form, PyTorch's operator does it, or says why not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from perfkit.kernels.cublaslt import Epilogue, Scales, product


def forward(x8: Tensor, w8: Tensor, scale_x: Tensor, scale_w: Tensor, y: Tensor) -> None:
    """Compute `fp8_linear_forward`: cuBLASLt's fastest algorithm, measured once."""
    _product(x8, w8, Scales(scale_x, scale_w, fast=True), y)


def bias_forward(x8: Tensor, w8: Tensor, scale_x: Tensor, scale_w: Tensor, bias: Tensor, y: Tensor) -> None:
    """Compute `fp8_linear_bias_forward`: cuBLASLt's fastest algorithm, measured once."""
    _product(x8, w8, Scales(scale_x, scale_w, fast=True), y, bias)


def backward_input(dy8: Tensor, w8t: Tensor, scale_dy: Tensor, scale_w: Tensor, dx: Tensor, add: int) -> None:
    """Compute `fp8_linear_backward_input`: cuBLASLt's fastest algorithm, measured once."""
    _product(dy8, w8t, Scales(scale_dy, scale_w), dx, add=bool(add))


def backward_weight(dy8t: Tensor, x8t: Tensor, scale_dy: Tensor, scale_x: Tensor, dweight: Tensor, add: int) -> None:
    """Compute `fp8_linear_backward_weight`: cuBLASLt's fastest algorithm, measured once."""
    _product(dy8t, x8t, Scales(scale_dy, scale_x), dweight, add=bool(add))


def _product(a: Tensor, b: Tensor, scales: Scales, out: Tensor, bias: Tensor | None = None, add: bool = False) -> None:
    epilogue = Epilogue.NONE if bias is None else Epilogue.BIAS
    if product(a, b, out, (False, True), epilogue, bias, add=add, scales=scales):
        return
    made = torch._scaled_mm(
        a, b.t(), scale_a=scales.of_a, scale_b=scales.of_b, bias=bias, out_dtype=out.dtype, use_fast_accum=scales.fast
    )  # fmt: skip
    if add:
        out.add_(made)
    else:
        out.copy_(made)
