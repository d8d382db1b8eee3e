"""Shapes and precisions that perfkit's kernels give, for Thunder's tracing.

Legend: B batch, T time, C channels, NH heads, HS head size, V vocabulary, N rows. Statistics are kept in fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.core import dtypes
from thunder.core.proxies import TensorProxy


def like(x: Any, shape: tuple[int, ...] | None = None, dtype: Any = None) -> TensorProxy:
    """A new tensor with the device and, unless given, shape and precision of `x`; it carries no gradient of its own."""
    return TensorProxy(
        like=x, shape=tuple(x.shape) if shape is None else shape, dtype=x.dtype if dtype is None else dtype
    )


def split_heads_forward(qkv: Any, heads: int) -> tuple[TensorProxy, TensorProxy, TensorProxy]:
    """(B, T, 3C) → three (B, NH, T, HS)."""
    batch, time, width = qkv.shape
    shape = (batch, heads, time, width // 3 // heads)
    return like(qkv, shape), like(qkv, shape), like(qkv, shape)


def split_heads_backward(dq: Any, dk: Any, dv: Any) -> TensorProxy:
    """Three (B, NH, T, HS) → (B, T, 3C)."""
    batch, heads, time, size = dq.shape
    return like(dq, (batch, time, 3 * heads * size))


def merge_heads_forward(x: Any) -> TensorProxy:
    """(B, NH, T, HS) → (B, T, C)."""
    batch, heads, time, size = x.shape
    return like(x, (batch, time, heads * size))


def merge_heads_backward(dy: Any, heads: int) -> TensorProxy:
    """(B, T, C) → (B, NH, T, HS)."""
    batch, time, channels = dy.shape
    return like(dy, (batch, heads, time, channels // heads))


def causal_softmax_forward(scores: Any, scale: float) -> TensorProxy:
    """(B, NH, T, T) → same."""
    return like(scores)


def causal_softmax_backward(datt: Any, att: Any, scale: float) -> TensorProxy:
    """(B, NH, T, T) → same."""
    return like(att)


def layernorm_forward(x: Any, weight: Any, bias: Any, eps: float) -> tuple[TensorProxy, TensorProxy, TensorProxy]:
    """(…, C) → y (…, C), mean (…) and rstd (…)."""
    rows = tuple(x.shape[:-1])
    return like(x), like(x, rows, dtypes.float32), like(x, rows, dtypes.float32)


def layernorm_backward(
    dy: Any, x: Any, weight: Any, mean: Any, rstd: Any
) -> tuple[TensorProxy, TensorProxy, TensorProxy]:
    """(…, C) → dx (…, C), dweight (C), dbias (C)."""
    return like(x), like(weight), like(weight)


def gelu_forward(x: Any) -> TensorProxy:
    """Any shape → same."""
    return like(x)


def gelu_backward(dy: Any, x: Any) -> TensorProxy:
    """Any shape → same."""
    return like(x)


def bias_gradient(dy: Any) -> TensorProxy:
    """(…, M) → (M)."""
    return like(dy, (dy.shape[-1],))


def cross_entropy_forward(logits: Any, targets: Any, ignore_index: int) -> tuple[TensorProxy, TensorProxy]:
    """(N, V) → loss () and logsumexp (N)."""
    return like(logits, ()), like(logits, tuple(targets.shape), dtypes.float32)


def cross_entropy_backward(dloss: Any, logits: Any, targets: Any, logsumexp: Any, ignore_index: int) -> TensorProxy:
    """(N, V) → same."""
    return like(logits)


META: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        split_heads_forward, split_heads_backward, merge_heads_forward, merge_heads_backward,
        causal_softmax_forward, causal_softmax_backward, layernorm_forward, layernorm_backward,
        gelu_forward, gelu_backward, bias_gradient, cross_entropy_forward, cross_entropy_backward,
    )
}  # fmt: skip
