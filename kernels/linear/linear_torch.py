"""A linear layer's products by PyTorch's operators, into given tensors. Shapes are those of `linear.py`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import gelu


def forward(x: Tensor, weight: Tensor, y: Tensor) -> None:
    """Compute `linear_forward`: the library's product, and what follows on its own."""
    torch.mm(x, weight.t(), out=y)


def bias_forward(x: Tensor, weight: Tensor, bias: Tensor, y: Tensor) -> None:
    """Compute `linear_bias_forward`: the library's product, and what follows on its own."""
    torch.addmm(bias, x, weight.t(), out=y)


def gelu_forward(x: Tensor, weight: Tensor, bias: Tensor, h: Tensor, g: Tensor) -> None:
    """Compute `linear_gelu_forward`: the library's product, and what follows on its own."""
    bias_forward(x, weight, bias, h)
    g.copy_(gelu(h, approximate="tanh"))


def backward_input(dy: Tensor, weight: Tensor, dx: Tensor) -> None:
    """Compute `linear_backward_input`: the library's product, and what follows on its own."""
    torch.mm(dy, weight, out=dx)


def backward_weight(dy: Tensor, x: Tensor, dweight: Tensor) -> None:
    """Compute `linear_backward_weight`: the library's product, and what follows on its own."""
    torch.mm(dy.t(), x, out=dweight)


def gelu_backward(dy: Tensor, weight: Tensor, h: Tensor, dh: Tensor) -> None:
    """Compute `linear_gelu_backward`: the library's product, and what follows on its own."""
    dh.copy_(torch.ops.aten.gelu_backward(dy @ weight, h, approximate="tanh"))
