"""A head with its cross entropy, whose logits are never whole in memory: one symbol forward, one backward.

Import it only after `support.load()` and `kernels.load()`: it needs both.
"""

from __future__ import annotations

from typing import Any

import thunder.torch as ltorch
from thunder.core import dtypes
from thunder.core.prims import get_grad, put_grad
from thunder.core.proxies import TensorProxy

from perfkit import functional
from perfkit.backends.thunder.executor.registry import claim, composite, fits, kernel_symbol

_forward = kernel_symbol("linear_cross_entropy_forward")
_backward = kernel_symbol("linear_cross_entropy_backward")


def _plain(x: Any, weight: Any, targets: Any, ignore_index: int) -> Any:
    """`functional.linear_cross_entropy` in Thunder's operators, for where the kernel does not apply."""
    logits = ltorch.linear(x, weight)
    wide = ltorch.to(logits, dtypes.float32) if logits.dtype.bytes < 4 else logits
    return ltorch.cross_entropy(wide, targets, ignore_index=ignore_index)


def _applies(x: Any, weight: Any, targets: Any, ignore_index: int) -> bool:
    rows = isinstance(targets, TensorProxy) and targets.ndim == 1 and targets.dtype == dtypes.int64
    return rows and x.ndim == 2 and x.numel() > 0 and fits("linear_cross_entropy", x, weight)


def _inference(x: Any, weight: Any, targets: Any, ignore_index: int) -> Any:
    return _forward(x, weight, targets, weight.shape[0], ignore_index)[0]


def _training(x: Any, weight: Any, targets: Any, ignore_index: int) -> Any:
    loss, *slopes = _forward(x, weight, targets, weight.shape[0], ignore_index)
    dx, dweight = _backward(get_grad(loss), *slopes)
    put_grad(x, dx)
    put_grad(weight, dweight)
    return loss


_loss = composite(functional.linear_cross_entropy, _plain)
claim(_loss, "linear_cross_entropy", _applies, _inference, _training)
