"""A linear layer's products by PyTorch's operators, into given tensors. Shapes are those of `linear.py`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import gelu


def forward(x: Tensor, weight: Tensor, y: Tensor) -> None:
    torch.mm(x, weight.t(), out=y)


def bias_forward(x: Tensor, weight: Tensor, bias: Tensor, y: Tensor) -> None:
    torch.addmm(bias, x, weight.t(), out=y)


def gelu_forward(x: Tensor, weight: Tensor, bias: Tensor, h: Tensor, g: Tensor) -> None:
    bias_forward(x, weight, bias, h)
    g.copy_(gelu(h, approximate="tanh"))


def backward_input(dy: Tensor, weight: Tensor, dx: Tensor) -> None:
    torch.mm(dy, weight, out=dx)


def backward_weight(dy: Tensor, x: Tensor, dweight: Tensor) -> None:
    torch.mm(dy.t(), x, out=dweight)


def gelu_backward(dy: Tensor, weight: Tensor, h: Tensor, dh: Tensor) -> None:
    dh.copy_(torch.ops.aten.gelu_backward(dy @ weight, h, approximate="tanh"))
