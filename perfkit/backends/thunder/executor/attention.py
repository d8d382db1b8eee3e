"""Causal attention in one kernel: the fastest that this machine has, PyTorch's operators or the catalog's kernel.

Which one that is for a shape is measured once a machine (`perfkit.handwritten.fastest_attention`), as for steps by
hand. The chosen way is an argument of the symbol, so that an executed trace names it.

Legend: B batch, NH heads, T time, HS head size; q, k, v and y (B, NH, T, HS), lse (B, NH, T) in fp32.

Import it only after `support.load()` and `kernels.load()`: it needs both.
"""

from __future__ import annotations

import math
from typing import Any

import thunder.torch as ltorch
import torch
from thunder.core import devices, dtypes
from thunder.core.prims import get_grad, put_grad
from thunder.core.proxies import TensorProxy
from torch import Tensor

from perfkit import kernels
from perfkit.backends.thunder.executor.registry import executor
from perfkit.backends.thunder.executor.shapes import like
from perfkit.handwritten import fastest_attention, library_attention

DEVICES = ("cuda",)
_SIXTEEN_BITS = (dtypes.bfloat16, dtypes.float16)
_measured: dict[tuple[Any, ...], fastest_attention.Times] = {}  # by shape, precision and device


def attention_forward(q: Tensor, k: Tensor, v: Tensor, scale: float, way: str) -> tuple[Tensor, Tensor]:
    """y and lse."""
    if way == fastest_attention.OWN:
        y, lse = kernels.direct("flash_attention_forward")(q, k, v, scale)
        return y, lse
    return _operators(way).forward(q, k, v, scale)


def attention_backward(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, scale: float, way: str
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv."""
    if way == fastest_attention.OWN:
        dq, dk, dv = kernels.direct("flash_attention_backward")(dy, q, k, v, y, lse, scale)
    else:
        dq, dk, dv = _operators(way).backward(dy, q, k, v, y, lse, scale)
    return dq, dk, dv


def _operators(way: str) -> library_attention.Operators:
    return next(one for one in library_attention.OPERATORS if one.name == way)


_forward = executor.register_operator(
    "attention_forward",
    meta=lambda q, k, v, scale, way: (like(q), like(q, q.shape[:3], dtypes.float32)),
    fn=attention_forward,
)
_backward = executor.register_operator(
    "attention_backward",
    meta=lambda dy, q, k, v, y, lse, scale, way: (like(q), like(k), like(v)),
    fn=attention_backward,
)


def notes() -> list[str]:
    """Sentences for the report on the choices that were made in this process."""
    return list(dict.fromkeys(fastest_attention.note(times) for times in _measured.values()))


def _applies(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None,
) -> bool:  # fmt: skip
    """Causal self-attention in 16 bits without mask and dropout, as many heads of keys as of queries."""
    tensors = query, key, value
    if not all(isinstance(x, TensorProxy) and x.ndim == 4 for x in tensors):
        return False
    alike = all(x.shape == query.shape and x.dtype == query.dtype and x.device == query.device for x in tensors)
    plain = is_causal and attn_mask is None and dropout_p == 0
    return alike and plain and query.dtype in _SIXTEEN_BITS and query.device.type in DEVICES


def _settled(q: Any, scale: float | None) -> tuple[float, str]:
    """The scale, and the way that is the fastest for tensors like `q`."""
    key = tuple(q.shape), q.dtype, q.device
    if key not in _measured:
        dtype, device = dtypes.to_torch_dtype(q.dtype), devices.to_torch_device(q.device)
        like_q = torch.empty(tuple(q.shape), dtype=dtype, device=device)
        _measured[key] = fastest_attention.measured(like_q, q.shape[1])
    best = fastest_attention.best(_measured[key])
    return 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale, best.name if best else fastest_attention.OWN


def _inference(query: Any, key: Any, value: Any, *others: Any, scale: float | None = None, **keywords: Any) -> Any:
    return _forward(query, key, value, *_settled(query, scale))[0]


def _training(query: Any, key: Any, value: Any, *others: Any, scale: float | None = None, **keywords: Any) -> Any:
    settled = _settled(query, scale)
    y, lse = _forward(query, key, value, *settled)
    gradients = _backward(get_grad(y), query, key, value, y, lse, *settled)
    for argument, gradient in zip((query, key, value), gradients, strict=True):
        put_grad(argument, gradient)
    return y


executor.register_implementation(
    ltorch.scaled_dot_product_attention, checker=_applies, execution_transform=_inference, grad_transform=_training
)
