"""What the family replaces: PyTorch's own operators."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from perfkit.kernels.replaced import Call, gradients

RESULTS = {"flash_attention_forward": ("y",)}


def flash_attention_forward(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Call:
    """PyTorch's own fused attention."""
    grouped = q.shape[1] != k.shape[1]
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=grouped)


def flash_attention_backward(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, scale: float) -> Call:
    """By autograd of PyTorch's own fused attention."""
    return gradients(lambda q, k, v: flash_attention_forward(q, k, v, scale)(), [q, k, v], dy)
