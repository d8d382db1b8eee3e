"""What the family replaces: PyTorch's own operators."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from perfkit import functional
from perfkit.kernels.replaced import Call


def decode_sum(x: Tensor, weight: Tensor, residual: Tensor) -> Call:
    """residual (B, M) + x (B, C) times the transposed weight (M, C)."""
    return lambda: residual + F.linear(x, weight)


def decode_swiglu(x: Tensor, norm: Tensor, gate: Tensor, up: Tensor, eps: float) -> Call:
    """SwiGLU of the norm of x (B, C) by norm (C), through gate and up (F, C): (B, F)."""

    def call() -> Tensor:
        y = F.rms_norm(x, norm.shape, norm, eps)
        return functional.swiglu(F.linear(y, gate), F.linear(y, up))

    return call


def decode_head(x: Tensor, norm: Tensor, weight: Tensor, eps: float) -> Call:
    """The norm of x (B, C) by norm (C), times the transposed weight (M, C): (B, M)."""
    return lambda: F.linear(F.rms_norm(x, norm.shape, norm, eps), weight)


def decode_attention(q: Tensor, keys: Tensor, values: Tensor, position: Tensor, scale: float) -> Call:
    """The scale is that of the head's size."""
    return lambda: functional.cached_attention(q[:, :, None], keys, values, position)[:, :, 0]


def decode_token(logits: Tensor) -> Call:
    """The place of the largest of each row of logits (B, M): (B, 1)."""
    return lambda: logits.argmax(-1, keepdim=True)
