"""Linear layers whose products are in fp8, for the executor: casts and products by perfkit's kernels.

    forward    y (…, M)  = x8 · w8ᵀ + b     x8 (N, K) and w8 (M, K) in e4m3
    backward   dx (…, K) = dy8 · w8         dy8 (N, M) in e5m2; db is the kernel `perfkit::bias_gradient`
               dW (M, K) = dy8ᵀ · x8

A cast is a symbol of its own, so that layers with the same input share it (`shared`), and a gradient that nobody asks
for is not computed. The forward keeps x8ᵀ and w8ᵀ, which no other product takes.

Import it only after `support.load()` and `kernels.load()`: it needs both.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from thunder.core import dtypes, prims
from thunder.core.prims import get_grad, put_grad
from thunder.core.proxies import variableify
from thunder.core.trace import from_trace
from torch import Tensor

from perfkit import kernels
from perfkit.backends.thunder.executor.registry import KERNELS, executor, kernel_symbol
from perfkit.backends.thunder.executor.shapes import like
from perfkit.fp8 import linear

_amax, _cast, _gradient_cast = (kernels.direct(f"fp8_{name}") for name in ("amax", "cast", "gradient_cast"))
_plain, _biased, _dx, _dw = (
    kernels.direct(f"fp8_linear_{name}") for name in ("forward", "bias_forward", "backward_input", "backward_weight")
)
_FORMATS = {True: dtypes.float8_e5m2, False: dtypes.float8_e4m3fn}


def cast_to_fp8(x: Tensor, gradient: bool) -> tuple[Tensor, Tensor, Tensor]:
    """x (…, K) → rows (N, K) in e4m3, of a `gradient` in e5m2, their transpose, and the scale of the largest now."""
    rows = x.reshape(-1, x.shape[-1])
    amax = torch.zeros((), dtype=torch.float32, device=x.device)
    _amax(rows, amax)
    found: tuple[Tensor, Tensor, Tensor] = (_gradient_cast if gradient else _cast)(rows, amax)
    return found


def fp8_linear_forward(x8: Tensor, w8: Tensor, scale_x: Tensor, scale_w: Tensor, bias: Any, lead: Any) -> Tensor:
    """x8 (N, K) · w8ᵀ + b → (…, M), where `lead` are the first dimensions."""
    y: Tensor = _plain(x8, w8, scale_x, scale_w) if bias is None else _biased(x8, w8, scale_x, scale_w, bias)
    return y.view(*lead, y.shape[-1])


def fp8_linear_backward_input(dy8: Tensor, w8t: Tensor, scale_dy: Tensor, scale_w: Tensor, lead: Any) -> Tensor:
    """dy8 (N, M) · w8 → (…, K), where `lead` are the first dimensions."""
    dx: Tensor = _dx(dy8, w8t, scale_dy, scale_w)
    return dx.view(*lead, dx.shape[-1])


def fp8_linear_backward_weight(dy8t: Tensor, x8t: Tensor, scale_dy: Tensor, scale_x: Tensor) -> Tensor:
    """dy8ᵀ · x8 → (M, K)."""
    dweight: Tensor = _dw(dy8t, x8t, scale_dy, scale_x)
    return dweight


def _cast_meta(x: Any, gradient: bool) -> Any:
    rows, width, form = math.prod(x.shape[:-1]), x.shape[-1], _FORMATS[gradient]
    shapes = (rows, width), (width, rows)
    return *(like(x, shape, form) for shape in shapes), like(x, (), dtypes.float32)


def _forward_meta(x8: Any, w8: Any, scale_x: Any, scale_w: Any, bias: Any, lead: Any) -> Any:
    return like(x8, (*lead, w8.shape[0]), dtypes.bfloat16)


def _input_meta(dy8: Any, w8t: Any, scale_dy: Any, scale_w: Any, lead: Any) -> Any:
    return like(dy8, (*lead, w8t.shape[0]), dtypes.bfloat16)


def _weight_meta(dy8t: Any, x8t: Any, scale_dy: Any, scale_x: Any) -> Any:
    return like(dy8t, (dy8t.shape[0], x8t.shape[0]), dtypes.bfloat16)


_to_fp8, _forward, _input_gradient, _weight_gradient = (
    executor.register_operator(function.__name__, meta=meta, fn=function)
    for function, meta in (
        (cast_to_fp8, _cast_meta), (fp8_linear_forward, _forward_meta),
        (fp8_linear_backward_input, _input_meta), (fp8_linear_backward_weight, _weight_meta),
    )
)  # fmt: skip
_bias_gradient = kernel_symbol("bias_gradient")


def _layer_meta(x: Any, weight: Any, bias: Any = None) -> Any:
    return like(x, (*x.shape[:-1], weight.shape[0]))


def _layer(x: Any, weight: Any, bias: Any = None) -> Any:
    x8, _, scale_x = _to_fp8(x, False)
    w8, _, scale_w = _to_fp8(weight, False)
    return _forward(x8, w8, scale_x, scale_w, bias, tuple(x.shape[:-1]))


def _layer_training(x: Any, weight: Any, bias: Any = None) -> Any:
    x8, x8t, scale_x = _to_fp8(x, False)
    w8, w8t, scale_w = _to_fp8(weight, False)
    lead = tuple(x.shape[:-1])
    y = _forward(x8, w8, scale_x, scale_w, bias, lead)
    dy = get_grad(y)
    dy8, dy8t, scale_dy = _to_fp8(dy, True)
    put_grad(x, _input_gradient(dy8, w8t, scale_dy, scale_w, lead))
    put_grad(weight, _weight_gradient(dy8t, x8t, scale_dy, scale_x))
    if bias is not None:
        put_grad(bias, _bias_gradient(dy))
    return y


def shared(trace: Any) -> Any:
    """An executed trace that does the same, and casts each tensor once: q, k and v of Llama take the same."""
    first: dict[tuple[Any, ...], Any] = {}
    instead: dict[Any, Any] = {}
    kept = []
    for bound in trace.bound_symbols:
        if bound.sym.name == _to_fp8.name:
            before = first.setdefault((bound.args[0].name, *bound.args[1:]), bound)
            if before is not bound:
                instead |= {variableify(o): b for o, b in zip(bound.output, before.output, strict=True)}
                continue
        kept.append(bound)
    if not instead:
        return trace
    new = from_trace(trace)
    new.bound_symbols = _freed(
        [bound.from_bsym_swap_proxies(instead) for bound in kept], {p.name for p in instead.values()}
    )
    new.set_provenance(trace.get_provenance())
    return new


def _freed(symbols: list[Any], names: set[str]) -> list[Any]:
    """Return the symbols, with the values of these names deleted after their last use."""
    last: dict[str, int] = {}
    for place, bound in enumerate(symbols):
        used = {p.name for p in (*bound.flat_proxy_args, *bound.flat_proxy_outs)} & names
        if bound.sym.id != prims.PrimIDs.DEL:
            last |= dict.fromkeys(used, place)
    found = []
    for place, bound in enumerate(symbols):
        if bound.sym.id == prims.PrimIDs.DEL:
            left = [p for p in bound.flat_proxy_args if p.name not in names]
            found += [prims.python_del.bind(*left, output=None)] if left else []
            continue
        found.append(bound)
        done = {p.name: p for p in (*bound.flat_proxy_args, *bound.flat_proxy_outs) if last.get(p.name) == place}
        if done and bound.sym.id != prims.PrimIDs.RETURN:
            found.append(prims.python_del.bind(*done.values(), output=None))
    return found


# The layer's function in the model: in eager PyTorch the same by PyTorch's own operators.
_fp8_linear = executor.register_operator(
    "fp8_linear", meta=_layer_meta, fn=linear.products, replaces=linear.products
)  # fmt: skip
KERNELS[_fp8_linear.name] = ("fp8_linear_forward", "fp8_linear_backward_weight")
executor.register_implementation(_fp8_linear, execution_transform=_layer, grad_transform=_layer_training)
