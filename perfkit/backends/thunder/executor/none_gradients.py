"""Backward traces that take None for the gradient of an output that nobody differentiates: it counts as zero.

A model returns its logits with the loss, and a training step differentiates the loss alone. Autograd hands the
backward trace zeros for the logits then, as large as they are, and the trace adds them to the loss's own gradient:
fills and sums of some gigabytes. `expect_none` asks autograd for None instead, and `tolerated` makes the trace take it:
a sum with such a gradient is the other one, and where it is used in any other way, zeros are made.

Import it only after `support.load()`: it needs Thunder.
"""

from __future__ import annotations

from typing import Any

import torch
from thunder.core import devices, dtypes
from thunder.core.proxies import CollectionProxy, TensorProxy
from thunder.core.trace import from_trace
from torch import Tensor

from perfkit.backends.thunder.executor.library import PAD_COLUMNS
from perfkit.backends.thunder.executor.registry import executor
from perfkit.backends.thunder.executor.shapes import like

_COTANGENTS = "cotangents"  # Thunder's name of a backward trace's argument
# The node of a trace: Thunder makes one of its outputs alone, but while a CUDA graph is captured one for all.
_NODES = ("ThunderOutputFunctionBackward", "ThunderFunctionBackward")
_SUMS = ("residual_add", "add")


def expect_none(result: Tensor | None) -> None:
    """Ask autograd to give None, not zeros, to the trace that made `result` for outputs that are not differentiated."""
    node: Any = None if result is None else result.grad_fn
    if type(node).__name__ in _NODES:
        node.set_materialize_grads(False)


def sum_of_gradients(a: Tensor | None, b: Tensor | None) -> Tensor:
    """a + b, where one of them may be absent."""
    if a is None or b is None:
        present = b if a is None else a
        assert present is not None
        return present
    return torch.add(a, b)


def gradient_or_zeros(gradient: Tensor | None, shape: Any, dtype: torch.dtype, device: str) -> Tensor:
    """The gradient, or zeros where it is absent."""
    return torch.zeros(shape, dtype=dtype, device=device) if gradient is None else gradient


_sum = executor.register_operator("sum_of_gradients", meta=lambda a, b: like(a), fn=sum_of_gradients)
_present = executor.register_operator("gradient_or_zeros", meta=lambda x, *others: like(x), fn=gradient_or_zeros)


def tolerated(trace: Any) -> Any:
    """An executed backward trace that does the same, and takes None for any output's gradient."""
    uses: dict[str, list[Any]] = {}
    for bound in trace.bound_symbols:
        for proxy in bound.flat_proxy_args:
            if bound.sym.name != "python_del":
                uses.setdefault(proxy.name, []).append(bound)
    sums: set[int] = set()
    new = from_trace(trace)
    for bound in trace.bound_symbols:
        if id(bound) in sums:
            plain, bound = bound, _sum.bind(*bound.args[:2], output=bound.output)
            bound.tags |= plain.tags
        new.bound_symbols.append(bound)
        if _unpacks_gradients(bound):
            for gradient in bound.flat_proxy_outs:
                found = _sums_of(gradient, uses)
                if found is None:
                    new.bound_symbols.append(_made_present(gradient))
                else:
                    sums |= found
    new.set_provenance(trace.get_provenance())
    return new


def _unpacks_gradients(bound: Any) -> bool:
    given = [a for a in bound.flat_proxy_args if isinstance(a, CollectionProxy)]
    return any(a.name == _COTANGENTS for a in given) and any(isinstance(p, TensorProxy) for p in bound.flat_proxy_outs)


def _sums_of(gradient: Any, uses: dict[str, list[Any]]) -> set[int] | None:
    """The ids of the sums that all uses of `gradient`, padded or not, come to; None where there is another use."""
    found: set[int] = set()
    for bound in uses.get(gradient.name, []):
        if bound.sym.name == PAD_COLUMNS:
            inner = _sums_of(bound.output, uses)
            if inner is None:
                return None
            found |= inner
        elif _sums(bound, gradient):
            found.add(id(bound))
        else:
            return None
    return found


def _sums(bound: Any, gradient: Any) -> bool:
    """Return whether a symbol is the plain sum of `gradient` and another tensor like it."""
    tensors = [a for a in bound.args[:2] if isinstance(a, TensorProxy)]
    if bound.sym.name not in _SUMS or len(tensors) != 2 or bound.kwargs.get("alpha", 1) not in (1, None):
        return False
    alike = all(tuple(t.shape) == tuple(gradient.shape) and t.dtype == gradient.dtype for t in (*tensors, bound.output))
    return alike and tensors[0].name != tensors[1].name


def _made_present(gradient: Any) -> Any:
    """Return the symbol that gives `gradient` its own name again, as a gradient that exists."""
    dtype, device = dtypes.to_torch_dtype(gradient.dtype), str(devices.to_torch_device(gradient.device))
    return _present.bind(gradient, tuple(gradient.shape), dtype, device, output=gradient)
