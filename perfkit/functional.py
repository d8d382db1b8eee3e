"""The parts of a model that hand-written kernels replace, as plain PyTorch functions.

A model calls them by name; eager PyTorch, torch.compile and thunder.jit run them as they are, and a backend with own
kernels replaces the whole function: by its identity in a captured program, or while it runs (`replaced`). Each works in
any floating-point precision.

Legend: B batch, T time (sequence length), C channels, NH heads, NKV heads of keys and values, HS head size, F width of
an MLP.
"""

from __future__ import annotations

import functools
import math
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

    `scores` (B, NH, T, S) are the products q·kᵀ: row = query, column = key; the queries are the last T of S tokens.
    Returns the attention weights, same shape.
    """
    queries, keys = scores.shape[-2:]
    past = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).tril(keys - queries)
    return torch.softmax((scores * scale).masked_fill(~past, float("-inf")), dim=-1)


@_replaceable
def grouped_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention in one operator of PyTorch: `q` (B, NH, T, HS), `k`, `v` (B, NKV, T, HS) → (B, NH, T, HS).

    Of the NH heads of queries NH / NKV in a row use the same head of keys and values.
    """
    grouped = q.shape[1] != k.shape[1]
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)


@_replaceable
def cached_attention(q: Tensor, keys: Tensor, values: Tensor, position: Tensor) -> Tensor:
    """Attention of one new position over a cache: `q` (B, NH, 1, HS), `keys`, `values` (B, NKV, S, HS) → as `q`.

    The cache has room for S positions; those up to `position` (1), int64, count. Shapes are the same for every token,
    so that one compiled program and one CUDA graph serve them all.
    """
    batch, groups, room, size = keys.shape
    shared = q.reshape(batch, groups, -1, size)  # the queries that use the same keys, as rows of one product
    scores = shared @ keys.transpose(2, 3) * (1.0 / math.sqrt(size))
    future = torch.arange(room, device=q.device) > position
    weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
    return (weights @ values).view(q.shape)


@_replaceable
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) · weight over the last dimension: `x` (…, C), `weight` (C) → (…, C)."""
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)


@_replaceable
def residual_rms_norm(x: Tensor, branch: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """A residual sum and its RMSNorm: `x`, `branch` (…, C), `weight` (C) → x + branch, and that normed, each (…, C)."""
    total = x + branch
    return total, torch.nn.functional.rms_norm(total, weight.shape, weight, eps)


@_replaceable
def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Turn the pairs (i, i + HS/2) of each head by the angle of its position: `q` (B, T, NH, HS), `k` (B, T, NKV, HS).

    `cos` and `sin` (T, HS/2) are of the angles; no gradient is asked of them. Returns both, turned, in their shapes.
    """
    return _turned(q, cos, sin), _turned(k, cos, sin)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    cos, sin = cos[:, None], sin[:, None]  # (T, 1, HS/2): the same for all heads
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


@_replaceable
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up, with silu(z) = z / (1 + exp(-z)): each (…, F) → (…, F)."""
    return torch.nn.functional.silu(gate) * up


@_replaceable
def linear_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor, ignore_index: int) -> Tensor:
    """Mean cross entropy of x·weightᵀ over the targets that count: `x` (N, C), `weight` (V, C), `targets` (N) → ().

    The loss is at least fp32: bf16's 8 significant bits would hide how it falls.
    """
    logits = torch.nn.functional.linear(x, weight)
    if logits.element_size() < 4:
        logits = logits.float()
    return torch.nn.functional.cross_entropy(logits, targets, ignore_index=ignore_index)


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
