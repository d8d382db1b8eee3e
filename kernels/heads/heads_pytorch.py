"""What the family replaces: PyTorch's own operators."""

from __future__ import annotations

import torch
from torch import Tensor

from perfkit import functional
from perfkit.kernels.replaced import Call


def split_heads_forward(qkv: Tensor, heads: int) -> Call:
    """With the copies that products make of the views."""
    return lambda: [t.contiguous() for t in functional.split_heads(qkv, heads)]


def split_heads_backward(dq: Tensor, dk: Tensor, dv: Tensor) -> Call:
    """dq, dk and dv (B, NH, T, HS), of fewer heads for k and v: the gradient of what was split, (B, T, …)."""
    return lambda: torch.cat([functional.merge_heads(t) for t in (dq, dk, dv)], dim=-1)


def merge_heads_backward(dy: Tensor, heads: int) -> Call:
    """dy (B, T, NH·HS): the gradient of the heads, (B, NH, T, HS)."""
    return lambda: dy.unflatten(-1, (heads, -1)).transpose(1, 2).contiguous()
