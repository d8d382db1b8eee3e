"""What the family replaces: PyTorch's own operators, and the operations as models write them."""

from __future__ import annotations

import torch
from torch import Tensor

from perfkit import functional
from perfkit.kernels.replaced import Call, gradients


def swiglu_backward(dy: Tensor, gate: Tensor, up: Tensor) -> Call:
    """dy, gate and up (…, F): gradients of gate and up, by autograd."""
    return gradients(functional.swiglu, [gate, up], dy)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """The formula an operator at a time: a model's own `silu(gate) * up` is PyTorch's way already."""
    return gate * torch.sigmoid(gate) * up


def naive_swiglu_forward(gate: Tensor, up: Tensor) -> Call:
    """gate and up (…, F): (…, F)."""
    return lambda: swiglu(gate, up)


def naive_swiglu_backward(dy: Tensor, gate: Tensor, up: Tensor) -> Call:
    """dy, gate and up (…, F): gradients of gate and up."""
    return gradients(swiglu, [gate, up], dy)
