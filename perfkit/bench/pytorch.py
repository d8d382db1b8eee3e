"""PyTorch's own operators for the catalog's operations: what its autograd runs for the same function.

An operation that is not here has its reference as PyTorch's way: that is then one operator, or what a model would
write. `OWN[name](*arguments)` prepares what lies outside the timed call (statistics that forward kept, a graph) and
gives the call; `RESULTS[name]` names what the call returns, in order, "" for what the operation does not give.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from perfkit import functional
from perfkit.errors import Unavailable

Call = Callable[[], Any]
aten = torch.ops.aten


def layernorm_forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Call:
    """x (…, C), weight and bias (C): the norm, and each row's mean and 1 / deviation."""
    return lambda: aten.native_layer_norm(x, weight.shape, weight, bias, eps)


def layernorm_backward(dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor) -> Call:
    """With statistics of its own, in the precision that it keeps them."""
    kept = aten.native_layer_norm(x, weight.shape, weight, weight, 1e-5)[1:]  # in the precision that it wants them
    every = [True, True, True]
    return lambda: aten.native_layer_norm_backward(dy, x, weight.shape, *kept, weight, weight, every)


def residual_layernorm_forward(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Call:
    """a and b (…, C), weight and bias (C): their sum, then its norm with statistics."""

    def call() -> Any:
        x = a + b
        return x, *aten.native_layer_norm(x, weight.shape, weight, bias, eps)

    return call


def rmsnorm_forward(x: Tensor, weight: Tensor, eps: float) -> Call:
    """x (…, C), weight (C): the norm, (…, C)."""
    return lambda: F.rms_norm(x, weight.shape, weight, eps)


def residual_rmsnorm_forward(a: Tensor, b: Tensor, weight: Tensor, eps: float) -> Call:
    """a and b (…, C), weight (C): their sum and its norm."""
    return lambda: functional.residual_rms_norm(a, b, weight, eps)


def rmsnorm_backward(dy: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> Call:
    """By autograd: what it runs differs between versions of PyTorch."""
    return gradients(lambda x, weight: F.rms_norm(x, weight.shape, weight, 1e-5), [x, weight], dy)


def gemv(x: Tensor, weight: Tensor) -> Call:
    """x (N, K) times the transposed weight (M, K): (N, M)."""
    return lambda: F.linear(x, weight)


def gemv_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Call:
    """x (N, K) times the transposed weight (M, K), and bias (M): (N, M)."""
    return lambda: F.linear(x, weight, bias)


def decode_sum(x: Tensor, weight: Tensor, residual: Tensor) -> Call:
    """residual (B, M) + x (B, C) times the transposed weight (M, C)."""
    return lambda: residual + F.linear(x, weight)


def decode_swiglu(x: Tensor, norm: Tensor, gate: Tensor, up: Tensor, eps: float) -> Call:
    """SwiGLU of the norm of x (B, C) by norm (C), through gate and up (F, C): (B, F)."""

    def call() -> Tensor:
        y = F.rms_norm(x, norm.shape, norm, eps)
        return functional.swiglu(F.linear(y, gate), F.linear(y, up))

    return call


def decode_head(x: Tensor, norm: Tensor, weight: Tensor, eps: float) -> Call:
    """The norm of x (B, C) by norm (C), times the transposed weight (M, C): (B, M)."""
    return lambda: F.linear(F.rms_norm(x, norm.shape, norm, eps), weight)


def decode_attention(q: Tensor, keys: Tensor, values: Tensor, position: Tensor, scale: float) -> Call:
    """The scale is that of the head's size."""
    return lambda: functional.cached_attention(q[:, :, None], keys, values, position)[:, :, 0]


def decode_token(logits: Tensor) -> Call:
    """The place of the largest of each row of logits (B, M): (B, 1)."""
    return lambda: logits.argmax(-1, keepdim=True)


def swiglu_backward(dy: Tensor, gate: Tensor, up: Tensor) -> Call:
    """dy, gate and up (…, F): gradients of gate and up, by autograd."""
    return gradients(functional.swiglu, [gate, up], dy)


def gradients(function: Callable[..., Any], arguments: list[Tensor], dy: Any) -> Call:
    """The backward pass of `function` by autograd, upstream gradients `dy`; its forward pass is not timed."""
    leaves = [a.detach().requires_grad_() for a in arguments]
    with torch.enable_grad():
        y = function(*leaves)
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)


def softmax_backward(dy: Tensor, y: Tensor) -> Call:
    """dy and y (…, M), y the forward's result: the gradient of its argument."""
    return lambda: aten._softmax_backward_data(dy, y, -1, y.dtype)


def causal_softmax_forward(scores: Tensor, scale: float) -> Call:
    """As models write it: the future is masked, then a softmax."""
    future = _future(scores)
    return lambda: torch.softmax((scores * scale).masked_fill(future, -math.inf), dim=-1)


def causal_softmax_backward(datt: Tensor, att: Tensor, scale: float) -> Call:
    """datt and att (…, T, S), att the forward's result: the gradient of the scores before the scale."""
    future = _future(att)
    return lambda: aten._softmax_backward_data(datt, att, -1, att.dtype).masked_fill(future, 0.0) * scale


def _future(scores: Tensor) -> Tensor:
    return torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(
        1 + scores.shape[-1] - scores.shape[-2]
    )


def split_heads_forward(qkv: Tensor, heads: int) -> Call:
    """With the copies that products make of the views."""
    return lambda: [t.contiguous() for t in functional.split_heads(qkv, heads)]


def split_heads_backward(dq: Tensor, dk: Tensor, dv: Tensor) -> Call:
    """dq, dk and dv (B, NH, T, HS), of fewer heads for k and v: the gradient of what was split, (B, T, …)."""
    return lambda: torch.cat([functional.merge_heads(t) for t in (dq, dk, dv)], dim=-1)


def merge_heads_backward(dy: Tensor, heads: int) -> Call:
    """dy (B, T, NH·HS): the gradient of the heads, (B, NH, T, HS)."""
    return lambda: dy.unflatten(-1, (heads, -1)).transpose(1, 2).contiguous()


def flash_attention_forward(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Call:
    """PyTorch's own fused attention."""
    grouped = q.shape[1] != k.shape[1]
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=grouped)


def flash_attention_backward(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, scale: float) -> Call:
    """By autograd of PyTorch's own fused attention."""
    return gradients(lambda q, k, v: flash_attention_forward(q, k, v, scale)(), [q, k, v], dy)


def encoder_forward(idx: Tensor, wte: Tensor, wpe: Tensor) -> Call:
    """idx (B, T), wte (V, C), wpe (P, C): the sum of both embeddings, (B, T, C)."""
    return lambda: F.embedding(idx, wte) + wpe[: idx.shape[1]]


def encoder_backward(dx: Tensor, idx: Tensor, vocabulary: int, positions: int) -> Call:
    """The gradients of two embeddings."""
    places = torch.arange(idx.shape[1], device=idx.device).expand_as(idx)

    def call() -> Any:
        dwte = aten.embedding_dense_backward(dx, idx, vocabulary, -1, False)
        return dwte, aten.embedding_dense_backward(dx, places, positions, -1, False)

    return call


def embedding_forward(idx: Tensor, weight: Tensor) -> Call:
    """idx (…), weight (V, C): (…, C)."""
    return lambda: F.embedding(idx, weight)


def embedding_backward(dx: Tensor, idx: Tensor, vocabulary: int) -> Call:
    """dx (…, C), idx (…): the gradient of the weight, (V, C)."""
    return lambda: aten.embedding_dense_backward(dx, idx, vocabulary, -1, False)


def cross_entropy_forward(logits: Tensor, targets: Tensor, vocabulary: int, ignore_index: int) -> Call:
    """log_softmax and nll_loss; padding is masked before the timed call."""
    masked = _masked(logits, vocabulary)
    return lambda: aten.nll_loss_forward(aten._log_softmax(masked, 1, False), targets, None, 1, ignore_index)[0]


def _masked(logits: Tensor, vocabulary: int) -> Tensor:
    """Logits without their padding, which PyTorch does not know; it reads a padded row all the same."""
    return logits.masked_fill(torch.arange(logits.shape[1], device=logits.device) >= vocabulary, float("-inf"))


def cross_entropy_backward(
    dloss: Tensor, logits: Tensor, targets: Tensor, logsumexp: Tensor, vocabulary: int, ignore_index: int
) -> Call:
    """The two backward operators, from the log_softmax that forward kept."""
    dloss = dloss.to(logits.dtype)
    kept = aten._log_softmax(_masked(logits, vocabulary), 1, False)
    weight = aten.nll_loss_forward(kept, targets, None, 1, ignore_index)[1]

    def call() -> Any:
        picked = aten.nll_loss_backward(dloss, kept, targets, None, 1, ignore_index, weight)
        return aten._log_softmax_backward_data(picked, kept, 1, logits.dtype)

    return call


def classifier(logits: Tensor, targets: Tensor, dloss: float, vocabulary: int, ignore_index: int) -> Call:
    """log_softmax + nll_loss, and their backward; over all columns when they have no padding, as a model would."""
    real = logits[:, :vocabulary].contiguous()
    upstream = torch.full((len(real),), dloss, dtype=real.dtype, device=real.device)
    none = torch.zeros((), dtype=real.dtype, device=real.device)

    def call() -> Any:
        kept = aten._log_softmax(real, 1, False)
        losses = aten.nll_loss_forward(kept, targets, None, 0, ignore_index)[0]
        picked = aten.nll_loss_backward(upstream, kept, targets, None, 0, ignore_index, none)
        return aten._log_softmax_backward_data(picked, kept, 1, real.dtype), losses

    return call


def adamw_step(
    param: Tensor, grad: Tensor, m: Tensor, v: Tensor,
    lr: float, beta1: float, beta2: float, eps: float, weight_decay: float, step: int, grad_scale: float,
) -> Call:  # fmt: skip
    """The fused AdamW, as `torch.optim.AdamW(fused=True)` calls it, given the scaled gradient."""
    if param.dtype != m.dtype:
        raise Unavailable("PyTorch's fused AdamW keeps its moments in the precision of the parameters.", "Use fp32.")
    lists = [[t] for t in (param.clone(), grad * grad_scale, m.clone(), v.clone())]
    count = torch.tensor(float(step), device=param.device)
    none: list[Tensor] = []

    def call() -> Any:
        torch._fused_adamw_(
            lists[0], lists[1], lists[2], lists[3], none, [count], lr=lr, beta1=beta1, beta2=beta2, eps=eps,
            weight_decay=weight_decay, amsgrad=False, maximize=False,
        )  # fmt: skip

        return lists[0][0], lists[2][0], lists[3][0]

    return call


def bias_relu_backward(dy: Tensor, y: Tensor) -> Call:
    """dy and y (N, M), y the forward's result: the gradient before ReLU; the bias's is not worked out."""
    return lambda: aten.threshold_backward(dy, y, 0)


def global_norm(x: Tensor) -> Call:
    """Not `vector_norm`: its sum in fp32 on the CPU was seen to be wrong by 9e-5 for seven million elements."""
    return lambda: x.float().square().sum()


OWN: dict[str, Callable[..., Call]] = {
    f.__name__: f
    for f in (
        layernorm_forward, layernorm_backward, residual_layernorm_forward, rmsnorm_forward, residual_rmsnorm_forward,
        rmsnorm_backward, swiglu_backward, softmax_backward, causal_softmax_forward, causal_softmax_backward,
        split_heads_forward, split_heads_backward, merge_heads_backward,
        flash_attention_forward, flash_attention_backward, encoder_forward, encoder_backward, embedding_forward,
        embedding_backward, cross_entropy_forward, cross_entropy_backward, classifier, adamw_step, bias_relu_backward,
        gemv, gemv_bias, decode_sum, decode_swiglu, decode_head, decode_attention, decode_token, global_norm,
    )
}  # fmt: skip

# Results of the calls that do not return the operation's own results in order.
RESULTS: dict[str, tuple[str, ...]] = {
    "rmsnorm_forward": ("y",),
    "residual_rmsnorm_forward": ("x", "y"),
    "flash_attention_forward": ("y",),
    "cross_entropy_forward": ("loss",),
    "classifier": ("", "losses"),  # its gradient has no padding
}
