"""The parts of a model that hand-written kernels replace, as plain PyTorch functions.

A model calls them by name; eager PyTorch, torch.compile and thunder.jit run them as they stand, and a backend with own
kernels replaces the whole function: by its identity in a captured program, or while it runs (`replaced`). Each works in
any floating-point precision.

Legend: B batch, T time (sequence length), C channels, NH heads, HS = C / NH head size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_instead: dict[str, Callable[..., Any]] = {}


@contextmanager
def replaced(functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """While the block runs, `functions` by name do what the functions of this module do otherwise."""
    before = dict(_instead)
    _instead.update(functions)
    try:
        yield
    finally:
        _instead.clear()
        _instead.update(before)


def _replaceable(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return _instead.get(function.__name__, function)(*arguments)

    return call


@_replaceable
def split_heads(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split a QKV projection into heads: `qkv` (B, T, 3C) → q, k, v, each (B, NH, T, HS)."""
    batch, time, width = qkv.shape
    channels = width // 3
    q, k, v = qkv.split(channels, dim=2)
    shape = (batch, time, heads, channels // heads)
    return q.view(shape).transpose(1, 2), k.view(shape).transpose(1, 2), v.view(shape).transpose(1, 2)


@_replaceable
def merge_heads(x: Tensor) -> Tensor:
    """Merge heads back into channels: `x` (B, NH, T, HS) → (B, T, C)."""
    batch, heads, time, head_size = x.shape
    return x.transpose(1, 2).contiguous().view(batch, time, heads * head_size)


@_replaceable
def causal_softmax(scores: Tensor, scale: float) -> Tensor:
    """Softmax over keys that are not in the future: softmax(scale · scores) with -inf above the diagonal.

    `scores` (B, NH, T, T) are the products q·kᵀ: row = query, column = key. Returns the attention weights, same shape.
    """
    time = scores.shape[-1]
    past = torch.ones(time, time, dtype=torch.bool, device=scores.device).tril()
    return torch.softmax((scores * scale).masked_fill(~past, float("-inf")), dim=-1)


@_replaceable
def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer and a ReLU: max(x·weightᵀ + bias, 0). `x` (…, K), `weight` (M, K), `bias` (M) → (…, M)."""
    return torch.relu(torch.nn.functional.linear(x, weight, bias))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "gelu": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


@_replaceable
def multiply_add_activation(x: Tensor, z: Tensor, alpha: float, bias: Tensor, activation: str) -> Tensor:
    """act(x + alpha·z + bias), `activation` one of `ACTIVATIONS`. `x`, `z` (…, M), `bias` (M) → (…, M)."""
    return ACTIVATIONS[activation](x + alpha * z + bias)
