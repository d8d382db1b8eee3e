"""Shapes and precisions that perfkit's kernels give, for Thunder's tracing: those that the catalog declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.core import dtypes
from thunder.core.proxies import ProxyTag, TensorProxy

from perfkit import kernels

NAMES = (
    "split_heads_forward", "split_heads_backward", "merge_heads_forward", "merge_heads_backward",
    "causal_softmax_forward", "causal_softmax_backward", "layernorm_forward", "layernorm_backward",
    "rmsnorm_forward", "rmsnorm_backward", "residual_rmsnorm_forward", "rotary_forward", "rotary_backward",
    "swiglu_forward", "swiglu_backward",
    "gelu_forward", "gelu_backward", "bias_gradient", "cross_entropy_forward", "cross_entropy_backward",
    "linear_cross_entropy_forward", "linear_cross_entropy_backward",
)  # fmt: skip


def like(x: Any, shape: tuple[int, ...] | None = None, dtype: Any = None) -> TensorProxy:
    """A new tensor with the device and, unless given, shape and precision of `x`; it carries no gradient of its own."""
    return TensorProxy(
        like=x, shape=tuple(x.shape) if shape is None else shape, dtype=x.dtype if dtype is None else dtype
    )


def detached(x: TensorProxy) -> bool:
    """Return whether a value of a captured trace was made under torch.no_grad: no gradient goes through it."""
    return ProxyTag.DETACHED_AUTOGRAD_GRAPH in x.tags  # type: ignore[attr-defined]  # an enumeration mypy does not see


class _Given:
    """A proxy as an operation's `allocate` sees a tensor."""

    def __init__(self, proxy: TensorProxy) -> None:
        self._proxy = proxy
        self.shape = tuple(proxy.shape)

    def new_empty(self, shape: tuple[int, ...], dtype: Any = None) -> TensorProxy:
        return like(self._proxy, shape, dtype and dtypes.to_dtype(dtype))


def _meta(name: str) -> Callable[..., Any]:
    operation = kernels.find(name)

    def meta(*arguments: Any) -> Any:
        return operation.allocate(*(_Given(a) if isinstance(a, TensorProxy) else a for a in arguments))

    return meta


META: dict[str, Callable[..., Any]] = {name: _meta(name) for name in NAMES}
