"""Thunder's executor `perfkit_llmc`: symbols of the trace that run on perfkit's hand-written kernels.

    symbol of the model                        forward                          backward
    perfkit.functional.split_heads             perfkit::split_heads_forward     perfkit::split_heads_backward
    perfkit.functional.merge_heads             perfkit::merge_heads_forward     perfkit::merge_heads_backward
    perfkit.functional.causal_softmax          perfkit::causal_softmax_forward  perfkit::causal_softmax_backward
    torch.nn.functional.layer_norm             perfkit::layernorm_forward       perfkit::layernorm_backward
    torch.nn.functional.gelu (tanh)            perfkit::gelu_forward            perfkit::gelu_backward
    torch.nn.functional.cross_entropy (mean)   perfkit::cross_entropy_forward   perfkit::cross_entropy_backward

Besides, on the CPU, linear layers and the gradients of embeddings (`products`): library products as everywhere, into
memory on huge pages, and the bias's gradient by perfkit::bias_gradient.

Each kernel is a symbol of its own in the executed trace, called as `torch.ops.perfkit.NAME`, so that it shows in the
trace and in any profiler. A checker says where a kernel applies: dtype and device for which it exists, and the form
of the operator. Elsewhere the symbol falls through to Thunder's other executors. The forward saves what the backward
kernel takes (mean and rstd, the softmax's result, the logsumexp), and every backward gets the gradient from above,
the loss's too.

Import it only after `thunder_support.load()` and `kernels.load()`: it needs both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import thunder.clang as clang
import thunder.torch as ltorch
import torch
from thunder.core import dtypes
from thunder.core.prims import get_grad, put_grad
from thunder.core.proxies import TensorProxy
from thunder.extend import OperatorExecutor, register_executor

from perfkit import functional, kernels
from perfkit.backends.llmc.products import FUNCTIONS
from perfkit.backends.llmc.shapes import META
from perfkit.kernels.languages import candidates

NAME = "perfkit_llmc"
# perfkit's names of the precisions a kernel may exist in.
_DTYPES = {dtypes.float64: "fp64", dtypes.float32: "fp32", dtypes.bfloat16: "bf16", dtypes.float16: "fp16"}

executor = OperatorExecutor(NAME, version="1")
register_executor(executor)

# Symbol name in the model → its two kernels, in the order of the table above.
KERNELS: dict[str, tuple[str, str]] = {}


def _kernel(name: str) -> Any:
    """Register the operator `torch.ops.perfkit.NAME` as a symbol of the executor."""
    return executor.register_operator(name, meta=META[name], fn=getattr(torch.ops.perfkit, name).default)


def _composite(function: Callable[..., Any], plain: Any) -> Any:
    """A symbol in the place of the model's `function`; `plain` is the same in Thunder's operators, its fallback."""
    return executor.register_operator(function.__name__, like=plain, fn=function, replaces=function)


def _claim(
    symbol: Any, kernel: str, applies: Callable[..., bool], forward: Callable[..., Any], training: Callable[..., Any]
) -> None:
    """Let `symbol` run by `forward` in inference and by `training` where a gradient is asked for, if `applies`."""
    KERNELS[symbol.name] = (f"{kernel}_forward", f"{kernel}_backward")
    executor.register_implementation(symbol, checker=applies, execution_transform=forward, grad_transform=training)


# A user's own kernel directories, searched besides the built-in catalog.
_directories: list[str] = []


def use_catalog(extra_directories: Sequence[str]) -> None:
    """Let the checkers ask the built-in catalog and a user's own directories, as `kernels.load` took them."""
    _directories[:] = extra_directories
    _exists.cache_clear()


@functools.cache
def _exists(kernel: str, device: str, dtype: str) -> bool:
    """Whether a kernel, or both directions of one, are written for a device and a precision."""
    found = (
        [kernels.find(kernel, _directories)]
        if kernel in META
        else [kernels.find(f"{kernel}_{direction}", _directories) for direction in ("forward", "backward")]
    )
    return all(candidates(operation, device, dtype) for operation in found)


def _fits(kernel: str, *tensors: Any) -> bool:
    """Whether all `tensors` are tensors of one precision and device that the kernel exists for."""
    if not all(isinstance(t, TensorProxy) for t in tensors):
        return False
    first = tensors[0]
    same = all(t.dtype == first.dtype and t.device == first.device for t in tensors)
    return same and first.dtype in _DTYPES and _exists(kernel, first.device.type, _DTYPES[first.dtype])


# ---- heads ----------------------------------------------------------------------------------------------------------

_split_forward, _split_backward = _kernel("split_heads_forward"), _kernel("split_heads_backward")
_merge_forward, _merge_backward = _kernel("merge_heads_forward"), _kernel("merge_heads_backward")


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


_split = _composite(functional.split_heads, _split_plain)
_merge = _composite(functional.merge_heads, _merge_plain)
_claim(_split, "split_heads", lambda qkv, heads: _fits("split_heads", qkv), _split_forward, _split_training)
_claim(_merge, "merge_heads", lambda x: _fits("merge_heads", x), _merge_forward, _merge_training)


# ---- causal softmax -------------------------------------------------------------------------------------------------

_softmax_forward, _softmax_backward = _kernel("causal_softmax_forward"), _kernel("causal_softmax_backward")


def _softmax_plain(scores: Any, scale: float) -> Any:
    time = scores.shape[-1]
    past = ltorch.tril(ltorch.ones(time, time, device=scores.device, dtype=dtypes.bool8))
    hidden = clang.logical_not(past)
    return ltorch.softmax(ltorch.masked_fill(scores * scale, hidden, float("-inf")), dim=-1)


def _softmax_applies(scores: Any, scale: float) -> bool:
    """On square scores, whose rows and columns are the same positions."""
    return scores.ndim == 4 and scores.shape[-1] == scores.shape[-2] and _fits("causal_softmax", scores)


def _softmax_training(scores: Any, scale: float) -> Any:
    weights = _softmax_forward(scores, scale)
    put_grad(scores, _softmax_backward(get_grad(weights), weights, scale))
    return weights


_softmax = _composite(functional.causal_softmax, _softmax_plain)
_claim(_softmax, "causal_softmax", _softmax_applies, _softmax_forward, _softmax_training)


# ---- LayerNorm ------------------------------------------------------------------------------------------------------

_norm_forward, _norm_backward = _kernel("layernorm_forward"), _kernel("layernorm_backward")


def _norm_applies(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> bool:
    """Over the last dimension, with weight and bias."""
    return len(normalized_shape) == 1 and _fits("layernorm", x, weight, bias)


def _norm_inference(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return _norm_forward(x, weight, bias, eps)[0]


def _norm_training(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    y, mean, rstd = _norm_forward(x, weight, bias, eps)
    gradients = _norm_backward(get_grad(y), x, weight, mean, rstd)
    for argument, gradient in zip((x, weight, bias), gradients, strict=True):
        put_grad(argument, gradient)
    return y


_claim(ltorch.layer_norm, "layernorm", _norm_applies, _norm_inference, _norm_training)


# ---- GELU -----------------------------------------------------------------------------------------------------------

_gelu_forward, _gelu_backward = _kernel("gelu_forward"), _kernel("gelu_backward")


def _gelu_applies(x: Any, *, approximate: str = "none") -> bool:
    return approximate == "tanh" and _fits("gelu", x)


def _gelu_inference(x: Any, *, approximate: str = "none") -> Any:
    return _gelu_forward(x)


def _gelu_training(x: Any, *, approximate: str = "none") -> Any:
    y = _gelu_forward(x)
    put_grad(x, _gelu_backward(get_grad(y), x))
    return y


_claim(ltorch.gelu, "gelu", _gelu_applies, _gelu_inference, _gelu_training)


# ---- cross entropy --------------------------------------------------------------------------------------------------

_loss_forward, _loss_backward = _kernel("cross_entropy_forward"), _kernel("cross_entropy_backward")


def _loss_applies(
    logits: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> bool:  # fmt: skip
    """Logits (N, V) against one class index a row, averaged, without class weights and label smoothing."""
    plain = weight is None and size_average is None and reduce is None and reduction == "mean" and label_smoothing == 0
    rows = isinstance(target, TensorProxy) and target.ndim == 1 and target.dtype == dtypes.int64
    return plain and rows and logits.ndim == 2 and logits.numel() > 0 and _fits("cross_entropy", logits)


def _loss_inference(logits: Any, target: Any, *others: Any, ignore_index: int = -100, **keywords: Any) -> Any:
    return _loss_forward(logits, target, _ignored(others, ignore_index))[0]


def _loss_training(logits: Any, target: Any, *others: Any, ignore_index: int = -100, **keywords: Any) -> Any:
    ignored = _ignored(others, ignore_index)
    loss, logsumexp = _loss_forward(logits, target, ignored)
    put_grad(logits, _loss_backward(get_grad(loss), logits, target, logsumexp, ignored))
    return loss


def _ignored(others: tuple[Any, ...], keyword: int) -> int:
    """`ignore_index`, the third argument after the target: (weight, size_average, ignore_index, …)."""
    return others[2] if len(others) > 2 else keyword


_claim(ltorch.cross_entropy, "cross_entropy", _loss_applies, _loss_inference, _loss_training)


# ---- linear layers and embeddings -----------------------------------------------------------------------------------

_bias_gradient = _kernel("bias_gradient")
_linear, _linear_dx, _linear_dw, _embedding_dw = (
    executor.register_operator(function.__name__, meta=meta, fn=function) for function, meta in FUNCTIONS
)


def _linear_applies(x: Any, weight: Any, bias: Any = None) -> bool:
    """Matrices of one precision on the CPU; elsewhere the libraries have faster forms, and no page is touched twice."""
    tensors = [x, weight] if bias is None else [x, weight, bias]
    return x.ndim >= 2 and x.device.type == "cpu" and _fits("bias_gradient", *tensors)


def _linear_training(x: Any, weight: Any, bias: Any = None) -> Any:
    y = _linear(x, weight, bias)
    dy = get_grad(y)
    put_grad(x, _linear_dx(dy, weight))
    put_grad(weight, _linear_dw(dy, x))
    if bias is not None:
        put_grad(bias, _bias_gradient(dy))
    return y


def _embedding_gradient_applies(
    grad: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool, sparse: bool
) -> bool:
    """Dense, every row counted as often as it was looked up."""
    plain = padding_idx == -1 and not scale_grad_by_freq and not sparse
    return plain and grad.device.type == "cpu" and grad.dtype in _DTYPES


def _embedding_gradient(grad: Any, indices: Any, num_weights: int, *others: Any) -> Any:
    return _embedding_dw(grad, indices, num_weights)


executor.register_implementation(
    ltorch.linear, checker=_linear_applies, execution_transform=_linear, grad_transform=_linear_training
)
executor.register_implementation(
    ltorch.embedding_backward, checker=_embedding_gradient_applies, execution_transform=_embedding_gradient
)
