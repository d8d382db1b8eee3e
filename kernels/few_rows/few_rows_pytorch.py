"""What the family replaces: PyTorch's own operators."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from perfkit.kernels.replaced import Call


def gemv(x: Tensor, weight: Tensor) -> Call:
    """x (N, K) times the transposed weight (M, K): (N, M)."""
    return lambda: F.linear(x, weight)


def gemv_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Call:
    """x (N, K) times the transposed weight (M, K), and bias (M): (N, M)."""
    return lambda: F.linear(x, weight, bias)
