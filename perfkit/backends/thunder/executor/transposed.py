"""Products of batches of matrices, in which one may be transposed: attention's, forward and backward.

Thunder writes a transposed factor and each gradient's factors as symbols of their own, and the gradient of `q @ kᵀ` for
k as the transpose of a product: the kernel that takes it next needs a copy first. Here each product is one symbol that
names its form, and each gradient is made in the layout of what it belongs to:

    y = a b        da = dy bᵀ     db = aᵀ dy
    y = a bᵀ       da = dy b      db = dyᵀ a

Legend: a (…, M, K), b (…, K, N) or, transposed, (…, N, K); y (…, M, N).

Import it only after `support.load()`: it needs Thunder.
"""

from __future__ import annotations

from typing import Any

import thunder.torch as ltorch
import torch
from thunder.core import dtypes
from thunder.core.prims import get_grad, put_grad
from thunder.core.proxies import TensorProxy
from thunder.core.trace import from_trace
from torch import Tensor

from perfkit.backends.thunder.executor.registry import executor
from perfkit.backends.thunder.executor.shapes import detached, like


def matmul_nn(a: Tensor, b: Tensor) -> Tensor:
    """a (…, M, K) · b (…, K, N)."""
    return torch.matmul(a, b)


def matmul_nt(a: Tensor, b: Tensor) -> Tensor:
    """a (…, M, K) · bᵀ, b (…, N, K)."""
    return torch.matmul(a, b.mT)


def matmul_tn(a: Tensor, b: Tensor) -> Tensor:
    """aᵀ · b, a (…, K, M), b (…, K, N)."""
    return torch.matmul(a.mT, b)


def _shape(a: Any, rows: int, b: Any, columns: int) -> TensorProxy:
    return like(a, (*a.shape[:-2], a.shape[rows], b.shape[columns]))


_nn = executor.register_operator("matmul_nn", meta=lambda a, b: _shape(a, -2, b, -1), fn=matmul_nn)
_nt = executor.register_operator("matmul_nt", meta=lambda a, b: _shape(a, -2, b, -2), fn=matmul_nt)
_tn = executor.register_operator("matmul_tn", meta=lambda a, b: _shape(a, -1, b, -1), fn=matmul_tn)


def _applies(a: Any, b: Any) -> bool:
    """Batches of matrices of floating-point numbers, as many of a as of b."""
    if not (isinstance(a, TensorProxy) and isinstance(b, TensorProxy)) or min(a.ndim, b.ndim) < 3:
        return False
    alike = a.dtype == b.dtype and a.device == b.device and tuple(a.shape[:-2]) == tuple(b.shape[:-2])
    return alike and isinstance(a.dtype, dtypes.floating)


def _nn_training(a: Any, b: Any) -> Any:
    y = _nn(a, b)
    dy = get_grad(y)
    put_grad(a, _nt(dy, b))
    put_grad(b, _tn(a, dy))
    return y


def _nt_training(a: Any, b: Any) -> Any:
    y = _nt(a, b)
    dy = get_grad(y)
    put_grad(a, _nn(dy, b))
    put_grad(b, _tn(dy, a))
    return y


executor.register_implementation(ltorch.matmul, checker=_applies, execution_transform=_nn, grad_transform=_nn_training)
executor.register_implementation(_nt, execution_transform=_nt, grad_transform=_nt_training)


def joined(trace: Any) -> Any:
    """A captured trace in which products take the matrices that it transposes for them as they are."""
    made = {proxy.name: bound for bound in trace.bound_symbols for proxy in bound.flat_proxy_outs}
    new = from_trace(trace)
    for bound in trace.bound_symbols:
        if bound.sym.id == ltorch.matmul.id and _applies(*bound.args[:2]):
            source = _untransposed(made.get(bound.args[1].name))
            if source is not None:
                product = _nt.bind(bound.args[0], source, output=bound.output)
                product.tags |= bound.tags
                bound = product
        new.bound_symbols.append(bound)
    return new


def _untransposed(bound: Any) -> Any:
    """Return the value whose last two dimensions a symbol swaps; None for other symbols, and under torch.no_grad."""
    if bound is None or bound.sym.name not in ("transpose", "permute") or len(bound.args) < 2:
        return None
    if detached(bound.output):
        return None
    x = bound.args[0]
    order = list(range(x.ndim))
    if bound.sym.name == "transpose" and len(bound.args) == 3:
        first, second = (int(d) % x.ndim for d in bound.args[1:3])
        order[first], order[second] = order[second], order[first]
    else:
        given = bound.args[1] if isinstance(bound.args[1], tuple | list) else bound.args[1:]
        order = [int(d) % x.ndim for d in given]
    swapped = [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]
    return x if order == swapped else None
