"""What the family replaces: PyTorch's own operators."""

from __future__ import annotations

import torch
from torch import Tensor

from perfkit.kernels.replaced import Call

aten = torch.ops.aten


def softmax_backward(dy: Tensor, y: Tensor) -> Call:
    """dy and y (…, M), y the forward's result: the gradient of its argument."""
    return lambda: aten._softmax_backward_data(dy, y, -1, y.dtype)
