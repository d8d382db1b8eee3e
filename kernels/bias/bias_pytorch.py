"""What the family replaces: PyTorch's own operators."""

from __future__ import annotations

import torch
from torch import Tensor

from perfkit.kernels.replaced import Call

aten = torch.ops.aten


def bias_relu_backward(dy: Tensor, y: Tensor) -> Call:
    """dy and y (N, M), y the forward's result: the gradient before ReLU; the bias's is not worked out."""
    return lambda: aten.threshold_backward(dy, y, 0)
