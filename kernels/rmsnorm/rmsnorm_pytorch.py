"""What the family replaces: PyTorch's own operators, and the operations as models write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from perfkit import functional
from perfkit.kernels.replaced import Call, gradients

RESULTS = {"rmsnorm_forward": ("y",), "residual_rmsnorm_forward": ("x", "y")}


def rmsnorm_forward(x: Tensor, weight: Tensor, eps: float) -> Call:
    """x (…, C), weight (C): the norm, (…, C)."""
    return lambda: F.rms_norm(x, weight.shape, weight, eps)


def residual_rmsnorm_forward(a: Tensor, b: Tensor, weight: Tensor, eps: float) -> Call:
    """a and b (…, C), weight (C): their sum and its norm."""
    return lambda: functional.residual_rms_norm(a, b, weight, eps)


def rmsnorm_backward(dy: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> Call:
    """By autograd: what it runs differs between versions of PyTorch."""
    return gradients(lambda x, weight: F.rms_norm(x, weight.shape, weight, 1e-5), [x, weight], dy)


def rmsnorm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The norm in fp32 by seven operators, rounded before the weight (transformers' `LlamaRMSNorm.forward`)."""
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def naive_rmsnorm_forward(x: Tensor, weight: Tensor, eps: float) -> Call:
    """x (…, C), weight (C): the norm, (…, C)."""
    return lambda: rmsnorm(x, weight, eps)


def naive_rmsnorm_backward(dy: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> Call:
    """dy and x (…, C), weight (C): gradients of x and weight; rstd is worked out again."""
    return gradients(lambda x, weight: rmsnorm(x, weight, 1e-5), [x, weight], dy)


def naive_residual_rmsnorm_forward(a: Tensor, b: Tensor, weight: Tensor, eps: float) -> Call:
    """a and b (…, C), weight (C): their sum and its norm, by two calls."""

    def call() -> tuple[Tensor, Tensor]:
        x = a + b
        return x, rmsnorm(x, weight, eps)

    return call
