"""A linear layer whose three products multiply fp8: e4m3 forward, e5m2 for gradients, a current scale a tensor.

Legend: N rows (batch × time), K width of the input, M of the output.

    forward    y (N, M)  = x8 · W8ᵀ + b       x8, W8 in e4m3
    backward   dx (N, K) = dy8 · W8           dy8 in e5m2
               dW (M, K) = dy8ᵀ · x8          db (M) = the sum of dy in bf16

A tensor's scale is its largest absolute value now, not that of an earlier step, over the largest number of its format.
Results are bf16. On a GPU the products are `torch._scaled_mm` (cuBLASLt), with fast accumulation forward only: the
tensor cores' own sums keep 14 bits, and gradients need more. It wants both operands with the inner dimension
contiguous, so that backward transposes dy8, x8 and W8.

All is written in PyTorch's operators, so that Inductor fuses maximum, scale and cast with what comes before them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

FORWARD, GRADIENT = torch.float8_e4m3fn, torch.float8_e5m2
RESULT = torch.bfloat16
MULTIPLE = 16  # of all dimensions of a product: cuBLASLt takes no others
_LEAST = 2.0**-100  # of a largest value: its scale is not 0


def scale_of(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The factor () in fp32 that makes numbers of `dtype` those of `x`."""
    return x.abs().amax().float().clamp(min=_LEAST) / torch.finfo(dtype).max


def cast(x: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` / `scale`, rounded to numbers of `dtype`; what is not finite stays so."""
    most = torch.finfo(dtype).max
    return (x.float() * scale.reciprocal()).clamp(-most, most).to(dtype)


def product(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None, fast: bool = False
) -> Tensor:
    """a (R, K) · b (K, S) times both scales, + bias (S): bf16. `b` lies column by column.

    On a CPU PyTorch multiplies the same numbers in fp32 and rounds once.
    """
    return torch._scaled_mm(
        a, b, scale_a=scale_a, scale_b=scale_b, bias=bias, out_dtype=RESULT, use_fast_accum=fast
    )  # fmt: skip


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        scale_x, scale_w = scale_of(rows, FORWARD), scale_of(weight, FORWARD)
        x8, w8 = cast(rows, scale_x, FORWARD), cast(weight, scale_w, FORWARD)
        ctx.save_for_backward(x8, scale_x, weight, scale_w)
        ctx.biased = bias is not None
        return product(x8, w8.t(), scale_x, scale_w, bias, fast=True).view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x8, scale_x, weight, scale_w = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows = dy.reshape(-1, dy.shape[-1])
        scale_dy = scale_of(rows, GRADIENT)
        dy8 = cast(rows, scale_dy, GRADIENT)
        dx = dweight = None
        if of_x:
            w8 = cast(weight, scale_w, FORWARD)
            dx = product(dy8, _by_columns(w8), scale_dy, scale_w).view(*dy.shape[:-1], weight.shape[1])
        if of_weight:
            dweight = product(dy8.t().contiguous(), _by_columns(x8), scale_dy, scale_x)
        return dx, dweight, rows.sum(0) if ctx.biased and of_bias else None


def _by_columns(x: Tensor) -> Tensor:
    """Return the matrix laid out column by column in memory."""
    return x.t().contiguous().t()


def products(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (…, K) · Wᵀ + b → (…, M), its products and those of its gradients in fp8. Backends with kernels replace it."""
    y: Tensor = _Products.apply(x, weight, bias)
    return y


class Linear(nn.Linear):
    """A linear layer with parameters in bf16 and products in fp8: x (…, K) → (…, M)."""

    def forward(self, x: Tensor) -> Tensor:
        """x (…, K) → (…, M)."""
        return products(x, self.weight, self.bias)
