"""What the family replaces: the operations as models write them."""

from __future__ import annotations

import torch
from torch import Tensor

from perfkit.kernels.replaced import Call, gradients


def rotate_half(x: Tensor) -> Tensor:
    """(u, v) → (−v, u), u and v the halves of each head."""
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """q (B, NH, T, HS), k (B, NKV, T, HS), cos and sin (1, 1, T, HS) (transformers' `apply_rotary_pos_emb`)."""
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def _of_all_channels(angle: Tensor) -> Tensor:
    """cos or sin (T, P) for both halves of a head: (1, 1, T, 2P)."""
    return torch.cat((angle, angle), dim=-1)[None, None]


def naive_rotary_forward(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Call:
    """Heads before positions, as attention takes them; the results as (B, T, NH, HS) again, which are views."""
    every_cos, every_sin = _of_all_channels(cos), _of_all_channels(sin)
    turned_q, turned_k = q.transpose(1, 2), k.transpose(1, 2)

    def call() -> list[Tensor]:
        return [y.transpose(1, 2) for y in rotary(turned_q, turned_k, every_cos, every_sin)]

    return call


def naive_rotary_backward(dq: Tensor, dk: Tensor, cos: Tensor, sin: Tensor) -> Call:
    """By autograd, with tensors in the order that models turn them in: (B, NH, T, HS)."""
    every_cos, every_sin = _of_all_channels(cos), _of_all_channels(sin)

    def turned(q: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        return rotary(q.transpose(1, 2), k.transpose(1, 2), every_cos, every_sin)

    upstream = (dq.transpose(1, 2).contiguous(), dk.transpose(1, 2).contiguous())
    return gradients(turned, [torch.empty_like(dq), torch.empty_like(dk)], upstream)
