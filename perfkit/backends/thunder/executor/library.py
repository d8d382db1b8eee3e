"""Linear layers, gradients of embeddings and sums: symbols of the trace that stay the library's, in a faster form.

Import it only after `support.load()` and `kernels.load()`: it needs both.
"""

from __future__ import annotations

from typing import Any

import thunder.torch as ltorch
import torch
from thunder.core import dtypes
from thunder.core.prims import get_grad, put_grad
from thunder.core.proxies import TensorProxy

from perfkit.backends.thunder.executor.products import FUNCTIONS, linear_forward, padded_width
from perfkit.backends.thunder.executor.registry import DTYPES, executor, fits, kernel_symbol
from perfkit.backends.thunder.executor.shapes import like

_SIXTEEN_BITS = (dtypes.bfloat16, dtypes.float16)

# ---- linear layers ---------------------------------------------------------------------------------------------------

_bias_gradient = kernel_symbol("bias_gradient")
_linear, _linear_dx, _linear_dw, _embedding_dw, _pad_rows, _pad_columns, _first_rows, _first_columns = (
    executor.register_operator(function.__name__, meta=meta, fn=function) for function, meta in FUNCTIONS
)
PAD_COLUMNS = _pad_columns.name


def _linear_applies(x: Any, weight: Any, bias: Any = None) -> bool:
    """Matrices of one precision on the CPU; on a GPU those of which the bias's gradient is a sum over many rows."""
    wanted = x.device.type == "cpu" or bias is not None
    return wanted and _fit(x, weight, bias)


def _fit(x: Any, weight: Any, bias: Any = None) -> bool:
    return x.ndim >= 2 and fits("bias_gradient", *([x, weight] if bias is None else [x, weight, bias]))


def _linear_training(x: Any, weight: Any, bias: Any = None) -> Any:
    y = _linear(x, weight, bias)
    dy = get_grad(y)
    put_grad(x, _linear_dx(dy, weight))
    put_grad(weight, _linear_dw(dy, x))
    if bias is not None:
        put_grad(bias, _bias_gradient(dy))
    return y


executor.register_implementation(
    ltorch.linear, checker=_linear_applies, execution_transform=_linear, grad_transform=_linear_training
)


# ---- products of padded matrices -------------------------------------------------------------------------------------


def padded(weight: Any) -> int:
    """The rows that a weight (M, K) should have for the products of its device."""
    fast = weight.dtype in _SIXTEEN_BITS or torch.get_float32_matmul_precision() != "highest"
    on_gpu = weight.device.type == "cuda" and fast and weight.dtype != dtypes.float64
    return padded_width(weight.shape[0], weight.dtype.bytes) if on_gpu else int(weight.shape[0])


def pads(bound: Any) -> bool:
    """Return whether a symbol of a captured trace is a linear layer whose product is padded."""
    linear = bound.sym.id == ltorch.linear.id and len(bound.args) >= 2 and not bound.kwargs
    return linear and _fit(*bound.args) and padded(bound.args[1]) != bound.args[1].shape[0]


def _wide_inference(x: Any, weight: Any, bias: Any, columns: int) -> Any:
    return _linear(x, _pad_rows(weight, columns), None if bias is None else _pad_rows(bias, columns))


def _wide_training(x: Any, weight: Any, bias: Any, columns: int) -> Any:
    """With its gradients, by products of matrices with `columns` rows and columns instead of M."""
    rows, wide = weight.shape[0], _pad_rows(weight, columns)
    y = _linear(x, wide, None if bias is None else _pad_rows(bias, columns))
    dy = get_grad(y)
    put_grad(x, _linear_dx(dy, wide))
    put_grad(weight, _first_rows(_linear_dw(dy, x), rows))
    if bias is not None:
        put_grad(bias, _first_rows(_bias_gradient(dy), rows))
    return y


def _first_columns_training(wide: Any, columns: int) -> Any:
    y = _first_columns(wide, columns)
    put_grad(wide, _pad_columns(get_grad(y), wide.shape[-1]))
    return y


# x (…, K), weight (M, K), bias (M) or None → (…, Mp): a padded product as it is, for what can read it so.
_wide_linear = executor.register_operator(
    "wide_linear", meta=lambda x, weight, bias, columns: like(x, (*x.shape[:-1], columns)), fn=linear_forward
)
executor.register_implementation(_wide_linear, execution_transform=_wide_inference, grad_transform=_wide_training)
executor.register_implementation(
    _first_columns, execution_transform=_first_columns, grad_transform=_first_columns_training
)


def wide_linear_symbols(x: Any, weight: Any, bias: Any, wide: Any, y: Any) -> list[Any]:
    """For a captured trace: the product `wide` (…, Mp) and its first columns, the linear layer's `y` (…, M)."""
    return [
        _wide_linear.bind(x, weight, bias, wide.shape[-1], output=wide),
        _first_columns.bind(wide, y.shape[-1], output=y),
    ]


# ---- embeddings ------------------------------------------------------------------------------------------------------


def _embedding_gradient_applies(
    grad: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool, sparse: bool
) -> bool:
    """Dense, every row counted as often as it was looked up."""
    plain = padding_idx == -1 and not scale_grad_by_freq and not sparse
    return plain and grad.device.type == "cpu" and grad.dtype in DTYPES


def _embedding_gradient(grad: Any, indices: Any, num_weights: int, *others: Any) -> Any:
    return _embedding_dw(grad, indices, num_weights)


executor.register_implementation(
    ltorch.embedding_backward, checker=_embedding_gradient_applies, execution_transform=_embedding_gradient
)


# ---- additions -------------------------------------------------------------------------------------------------------

# Thunder's own gradient of a sum goes through fp32: for numbers in 16 bits that is three conversions for each sum.
_add = executor.register_operator("residual_add", meta=lambda a, b: like(a), fn=torch.add)


def _add_applies(a: Any, b: Any, *, alpha: Any = 1) -> bool:
    """Two tensors in 16 bits, of one shape or the second repeated over the first dimensions of the other.

    PyTorch adds them in fp32 and rounds once, as the conversions would.
    """
    if not (isinstance(a, TensorProxy) and isinstance(b, TensorProxy) and isinstance(alpha, int) and alpha == 1):
        return False
    repeated = b.ndim <= a.ndim and tuple(a.shape[a.ndim - b.ndim :]) == tuple(b.shape)
    return repeated and a.dtype == b.dtype and a.device == b.device and a.dtype in _SIXTEEN_BITS


def _add_training(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    y = _add(a, b)
    put_grad(a, get_grad(y))
    put_grad(b, ltorch.sum(get_grad(y), tuple(range(a.ndim - b.ndim))) if b.ndim < a.ndim else get_grad(y))
    return y


executor.register_implementation(
    ltorch.add, checker=_add_applies, execution_transform=lambda a, b, **_: _add(a, b), grad_transform=_add_training
)
