"""Thunder's executor `perfkit_llmc`: symbols of the trace that run on perfkit's hand-written kernels.

    symbol of the model                        forward                          backward
    perfkit.functional.split_heads             perfkit::split_heads_forward     perfkit::split_heads_backward
    perfkit.functional.merge_heads             perfkit::merge_heads_forward     perfkit::merge_heads_backward
    perfkit.functional.causal_softmax          perfkit::causal_softmax_forward  perfkit::causal_softmax_backward
    perfkit.functional.rms_norm                perfkit::rmsnorm_forward         perfkit::rmsnorm_backward
    perfkit.functional.residual_rms_norm       perfkit::residual_rmsnorm_forward  the same, and a sum
    perfkit.functional.rotary                  perfkit::rotary_forward          perfkit::rotary_backward
    perfkit.functional.swiglu                  perfkit::swiglu_forward          perfkit::swiglu_backward
    torch.nn.functional.layer_norm             perfkit::layernorm_forward       perfkit::layernorm_backward
    torch.nn.functional.gelu (tanh)            perfkit::gelu_forward            perfkit::gelu_backward
    torch.nn.functional.cross_entropy (mean)   perfkit::cross_entropy_forward   perfkit::cross_entropy_backward
    perfkit.functional.linear_cross_entropy    perfkit::linear_cross_entropy_…  the same
    perfkit.fp8.linear.products                perfkit::fp8_linear_forward      perfkit::fp8_linear_backward_…

Besides (`library`): linear layers, gradients of embeddings and sums of 16-bit numbers stay the library's, in a form
that costs less: on the CPU products into memory on huge pages, on a GPU a long vocabulary padded; a bias's gradient is
perfkit::bias_gradient.

Causal attention in 16 bits on a GPU (`attention`) is the fastest of PyTorch's operators and perfkit::flash_attention.

Cross entropy (`losses`) reads logits in their own precision, in the rows that the head's product made.

Each kernel is a symbol of its own in the executed trace, called as `torch.ops.perfkit.NAME`, so that it shows in the
trace and in any profiler. A checker says where a kernel applies: dtype and device for which it exists, and the form
of the operator. Elsewhere the symbol falls through to Thunder's other executors. The forward saves what the backward
kernel takes (mean and rstd, the softmax's result, the logsumexp), and every backward gets the gradient from above,
the loss's too.

Import it only after `support.load()` and `kernels.load()`: it needs both.
"""

from __future__ import annotations

from typing import Any

import thunder.clang as clang
import thunder.torch as ltorch
from thunder.core import dtypes
from thunder.core.prims import get_grad, put_grad

from perfkit import functional
from perfkit.backends.thunder.executor import attention, fp8, library, linear_loss, losses, transposed
from perfkit.backends.thunder.executor.registry import (
    KERNELS,
    NAME,
    claim,
    composite,
    executor,
    fits,
    kernel_symbol,
    use_catalog,
)

__all__ = [
    "KERNELS", "NAME", "attention", "executor", "fp8", "library", "linear_loss", "losses", "transposed", "use_catalog",
]  # fmt: skip


# ---- heads ----------------------------------------------------------------------------------------------------------

_split_forward, _split_backward = kernel_symbol("split_heads_forward"), kernel_symbol("split_heads_backward")
_merge_forward, _merge_backward = kernel_symbol("merge_heads_forward"), kernel_symbol("merge_heads_backward")


def _split_plain(qkv: Any, heads: int) -> Any:
    """`functional.split_heads` in Thunder's operators, for where the kernel does not apply."""
    batch, time, width = qkv.shape
    shape = (batch, time, heads, width // 3 // heads)
    return tuple(ltorch.transpose(ltorch.reshape(x, shape), 1, 2) for x in ltorch.split(qkv, width // 3, 2))


def _merge_plain(x: Any) -> Any:
    batch, heads, time, size = x.shape
    return ltorch.reshape(ltorch.transpose(x, 1, 2), (batch, time, heads * size))


def _split_training(qkv: Any, heads: int) -> Any:
    q, k, v = _split_forward(qkv, heads)
    put_grad(qkv, _split_backward(get_grad(q), get_grad(k), get_grad(v)))
    return q, k, v


def _merge_training(x: Any) -> Any:
    y = _merge_forward(x)
    put_grad(x, _merge_backward(get_grad(y), x.shape[1]))
    return y


_split = composite(functional.split_heads, _split_plain)
_merge = composite(functional.merge_heads, _merge_plain)
claim(_split, "split_heads", lambda qkv, heads: fits("split_heads", qkv), _split_forward, _split_training)
claim(_merge, "merge_heads", lambda x: fits("merge_heads", x), _merge_forward, _merge_training)


# ---- causal softmax -------------------------------------------------------------------------------------------------

_softmax_forward, _softmax_backward = kernel_symbol("causal_softmax_forward"), kernel_symbol("causal_softmax_backward")


def _softmax_plain(scores: Any, scale: float) -> Any:
    time = scores.shape[-1]
    past = ltorch.tril(ltorch.ones(time, time, device=scores.device, dtype=dtypes.bool8))
    hidden = clang.logical_not(past)
    return ltorch.softmax(ltorch.masked_fill(scores * scale, hidden, float("-inf")), dim=-1)


def _softmax_applies(scores: Any, scale: float) -> bool:
    """On square scores, whose rows and columns are the same positions."""
    return scores.ndim == 4 and scores.shape[-1] == scores.shape[-2] and fits("causal_softmax", scores)


def _softmax_training(scores: Any, scale: float) -> Any:
    weights = _softmax_forward(scores, scale)
    put_grad(scores, _softmax_backward(get_grad(weights), weights, scale))
    return weights


_softmax = composite(functional.causal_softmax, _softmax_plain)
claim(_softmax, "causal_softmax", _softmax_applies, _softmax_forward, _softmax_training)


# ---- LayerNorm ------------------------------------------------------------------------------------------------------

_norm_forward, _norm_backward = kernel_symbol("layernorm_forward"), kernel_symbol("layernorm_backward")


def _norm_applies(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> bool:
    """Over the last dimension, with weight and bias."""
    return len(normalized_shape) == 1 and fits("layernorm", x, weight, bias)


def _norm_inference(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return _norm_forward(x, weight, bias, eps)[0]


def _norm_training(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    y, mean, rstd = _norm_forward(x, weight, bias, eps)
    gradients = _norm_backward(get_grad(y), x, weight, mean, rstd)
    for argument, gradient in zip((x, weight, bias), gradients, strict=True):
        put_grad(argument, gradient)
    return y


claim(ltorch.layer_norm, "layernorm", _norm_applies, _norm_inference, _norm_training)


# ---- RMSNorm --------------------------------------------------------------------------------------------------------

_rms_forward, _rms_backward = kernel_symbol("rmsnorm_forward"), kernel_symbol("rmsnorm_backward")
_residual_rms_forward = kernel_symbol("residual_rmsnorm_forward")


def _rms_plain(x: Any, weight: Any, eps: float) -> Any:
    return ltorch.rms_norm(x, weight.shape, weight, eps)


def _residual_rms_plain(x: Any, branch: Any, weight: Any, eps: float) -> Any:
    total = x + branch
    return total, ltorch.rms_norm(total, weight.shape, weight, eps)


def _rms_training(x: Any, weight: Any, eps: float) -> Any:
    y, rstd = _rms_forward(x, weight, eps)
    dx, dweight = _rms_backward(get_grad(y), x, weight, rstd)
    put_grad(x, dx)
    put_grad(weight, dweight)
    return y


def _residual_rms_training(x: Any, branch: Any, weight: Any, eps: float) -> Any:
    total, y, rstd = _residual_rms_forward(x, branch, weight, eps)
    through, dweight = _rms_backward(get_grad(y), total, weight, rstd)
    dtotal = get_grad(total) + through
    for argument, gradient in ((x, dtotal), (branch, dtotal), (weight, dweight)):
        put_grad(argument, gradient)
    return total, y


_rms = composite(functional.rms_norm, _rms_plain)
_residual_rms = composite(functional.residual_rms_norm, _residual_rms_plain)
claim(
    _rms, "rmsnorm", lambda x, weight, eps: fits("rmsnorm", x, weight),
    lambda x, weight, eps: _rms_forward(x, weight, eps)[0], _rms_training,
)  # fmt: skip
claim(
    _residual_rms, "residual_rmsnorm",
    lambda x, branch, weight, eps: fits("rmsnorm", x, branch, weight),
    lambda x, branch, weight, eps: _residual_rms_forward(x, branch, weight, eps)[:2], _residual_rms_training,
    backward="rmsnorm_backward",
)  # fmt: skip


# ---- rotary embedding and SwiGLU ------------------------------------------------------------------------------------

_rotary_forward, _rotary_backward = kernel_symbol("rotary_forward"), kernel_symbol("rotary_backward")
_swiglu_forward, _swiglu_backward = kernel_symbol("swiglu_forward"), kernel_symbol("swiglu_backward")


def _rotary_plain(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    return _turned_plain(q, cos, sin), _turned_plain(k, cos, sin)


def _turned_plain(x: Any, cos: Any, sin: Any) -> Any:
    cos, sin = ltorch.unsqueeze(cos, 1), ltorch.unsqueeze(sin, 1)
    first, second = ltorch.chunk(x, 2, -1)
    return ltorch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _rotary_applies(q: Any, k: Any, cos: Any, sin: Any) -> bool:
    """On tables that ask for no gradient: the kernel gives none."""
    return fits("rotary", q, k, cos, sin) and not (cos.requires_grad or sin.requires_grad)


def _rotary_training(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    turned_q, turned_k = _rotary_forward(q, k, cos, sin)
    dq, dk = _rotary_backward(get_grad(turned_q), get_grad(turned_k), cos, sin)
    put_grad(q, dq)
    put_grad(k, dk)
    return turned_q, turned_k


def _swiglu_plain(gate: Any, up: Any) -> Any:
    return ltorch.silu(gate) * up


def _swiglu_applies(gate: Any, up: Any) -> bool:
    return fits("swiglu", gate, up) and tuple(gate.shape) == tuple(up.shape)


def _swiglu_training(gate: Any, up: Any) -> Any:
    y = _swiglu_forward(gate, up)
    dgate, dup = _swiglu_backward(get_grad(y), gate, up)
    put_grad(gate, dgate)
    put_grad(up, dup)
    return y


_rotary = composite(functional.rotary, _rotary_plain)
_swiglu = composite(functional.swiglu, _swiglu_plain)
claim(_rotary, "rotary", _rotary_applies, _rotary_forward, _rotary_training)
claim(_swiglu, "swiglu", _swiglu_applies, _swiglu_forward, _swiglu_training)


# ---- GELU -----------------------------------------------------------------------------------------------------------

_gelu_forward, _gelu_backward = kernel_symbol("gelu_forward"), kernel_symbol("gelu_backward")


def _gelu_applies(x: Any, *, approximate: str = "none") -> bool:
    return approximate == "tanh" and fits("gelu", x)


def _gelu_inference(x: Any, *, approximate: str = "none") -> Any:
    return _gelu_forward(x)


def _gelu_training(x: Any, *, approximate: str = "none") -> Any:
    y = _gelu_forward(x)
    put_grad(x, _gelu_backward(get_grad(y), x))
    return y


claim(ltorch.gelu, "gelu", _gelu_applies, _gelu_inference, _gelu_training)
