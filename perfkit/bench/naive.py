"""The catalog's operations as models write them in eager PyTorch: the way "naive", next to PyTorch's own operator.

transformers' models round, convert and concatenate where a fused operator does not: a kernel replaces these calls, so
they are what it saves. `NAIVE[name](*arguments)` prepares what a model has ready (views, angles of all channels, the
graph of a forward pass) and gives the call; what the call returns is named by `RESULTS` of `perfkit.bench.pytorch`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from perfkit.bench.pytorch import Call, gradients


def rmsnorm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The norm in fp32 by seven operators, rounded before the weight (transformers' `LlamaRMSNorm.forward`)."""
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def rotate_half(x: Tensor) -> Tensor:
    """(u, v) → (−v, u), u and v the halves of each head."""
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """q (B, NH, T, HS), k (B, NKV, T, HS), cos and sin (1, 1, T, HS) (transformers' `apply_rotary_pos_emb`)."""
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """The formula an operator at a time: a model's own `silu(gate) * up` is PyTorch's way already."""
    return gate * torch.sigmoid(gate) * up


def cross_entropy(logits: Tensor, targets: Tensor, ignore_index: int) -> Tensor:
    """The logits converted to fp32 first (transformers' `ForCausalLMLoss`)."""
    return F.cross_entropy(logits.float(), targets, ignore_index=ignore_index)


def rmsnorm_forward(x: Tensor, weight: Tensor, eps: float) -> Call:
    """x (…, C), weight (C): the norm, (…, C)."""
    return lambda: rmsnorm(x, weight, eps)


def rmsnorm_backward(dy: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> Call:
    """dy and x (…, C), weight (C): gradients of x and weight; rstd is worked out again."""
    return gradients(lambda x, weight: rmsnorm(x, weight, 1e-5), [x, weight], dy)


def residual_rmsnorm_forward(a: Tensor, b: Tensor, weight: Tensor, eps: float) -> Call:
    """a and b (…, C), weight (C): their sum and its norm, by two calls."""

    def call() -> tuple[Tensor, Tensor]:
        x = a + b
        return x, rmsnorm(x, weight, eps)

    return call


def rotary_forward(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Call:
    """Heads before positions, as attention takes them; the results as (B, T, NH, HS) again, which are views."""
    every_cos, every_sin = _of_all_channels(cos), _of_all_channels(sin)
    turned_q, turned_k = q.transpose(1, 2), k.transpose(1, 2)

    def call() -> list[Tensor]:
        return [y.transpose(1, 2) for y in rotary(turned_q, turned_k, every_cos, every_sin)]

    return call


def rotary_backward(dq: Tensor, dk: Tensor, cos: Tensor, sin: Tensor) -> Call:
    """By autograd, with tensors in the order that models turn them in: (B, NH, T, HS)."""
    every_cos, every_sin = _of_all_channels(cos), _of_all_channels(sin)

    def turned(q: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        return rotary(q.transpose(1, 2), k.transpose(1, 2), every_cos, every_sin)

    upstream = (dq.transpose(1, 2).contiguous(), dk.transpose(1, 2).contiguous())
    return gradients(turned, [torch.empty_like(dq), torch.empty_like(dk)], upstream)


def _of_all_channels(angle: Tensor) -> Tensor:
    """cos or sin (T, P) for both halves of a head: (1, 1, T, 2P)."""
    return torch.cat((angle, angle), dim=-1)[None, None]


def swiglu_forward(gate: Tensor, up: Tensor) -> Call:
    """gate and up (…, F): (…, F)."""
    return lambda: swiglu(gate, up)


def swiglu_backward(dy: Tensor, gate: Tensor, up: Tensor) -> Call:
    """dy, gate and up (…, F): gradients of gate and up."""
    return gradients(swiglu, [gate, up], dy)


def cross_entropy_forward(logits: Tensor, targets: Tensor, vocabulary: int, ignore_index: int) -> Call:
    """logits (N, V), targets (N): the mean loss."""
    return lambda: cross_entropy(words(logits, vocabulary), targets, ignore_index)


def words(logits: Tensor, vocabulary: int) -> Tensor:
    """Logits (N, Vp) without their padding, which a model's code does not have: (N, V)."""
    return logits if logits.shape[1] == vocabulary else logits[:, :vocabulary]


def cross_entropy_backward(
    dloss: Tensor, logits: Tensor, targets: Tensor, logsumexp: Tensor, vocabulary: int, ignore_index: int
) -> Call:
    """logits (N, V), targets (N), dloss (): the gradient of the logits."""

    def loss(logits: Tensor) -> Tensor:
        return cross_entropy(words(logits, vocabulary), targets, ignore_index)

    return gradients(loss, [logits], dloss.float())


NAIVE: dict[str, Callable[..., Call]] = {
    f.__name__: f
    for f in (
        rmsnorm_forward, rmsnorm_backward, residual_rmsnorm_forward, rotary_forward, rotary_backward,
        swiglu_forward, swiglu_backward, cross_entropy_forward, cross_entropy_backward,
    )
}  # fmt: skip
