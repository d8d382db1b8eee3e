"""Scaled dot product attention as one operator: two products forward, five backward, and the softmax between.

B batch, H query heads, Q queries, K keys, D head size, E head size of the values. P is the number of pairs of a query
and a key over B and H that the mask lets through: B·H·Q·K without one, B·H·T·(T+1)/2 with a causal one where Q = K = T.
Only these have to be computed; where the mask was not recorded, the FLOP are unknown. A mask given as a tensor hides
nothing, for its values are not known, and the kernels compute every pair.
Backward recomputes the scores, so it has five products. The softmax counts 6 per score forward (scale, max, subtract,
exp, sum, divide) and 8 backward (scale, subtract the log-sum, exp to recompute; then multiply, row sum, subtract,
multiply, scale).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.cost.operators import masks
from perfkit.cost.operators.masks import ArgumentPositions, after_number
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import dense, matrix_unit, product, tensor_at, vector_unit, work

# Operations on each of the P scores.
SOFTMAX_FORWARD, SOFTMAX_BACKWARD = 6, 8


@dataclass(frozen=True)
class _Sizes:
    rows: int  # B·H·Q
    d: int
    e: int
    pairs: float | None


def _sizes(call: Call, places: ArgumentPositions) -> _Sizes:
    """Sizes and pairs; tensors are (…, H, T, D), or (…, T, H, D) in the inner flash and efficient kernels."""
    query, key, value = (call.tensor(places.query + i) for i in range(3))
    packed = masks.is_packed(call, places) and len(query.shape) == 3
    time, head = (-3, -2) if places.time_first or packed else (-2, -3)
    if query.shape[-1] != key.shape[-1] or key.shape[time] != value.shape[time]:
        raise ValueError("query, key and value do not fit together")
    batch, heads, queries = product(query.shape[:-3]), query.shape[head], query.shape[time]
    pairs = masks.pairs(call, places, batch, queries, key.shape[time])
    of_all = None if pairs is None else float(heads * pairs)
    return _Sizes(batch * heads * queries, query.shape[-1], value.shape[-1], of_all)


def _flop(
    call: Call, sizes: _Sizes, per_pair: float, softmax: int, bias: bool, per_row: float = 0.0
) -> dict[str, float]:
    """FLOP by unit, empty where the pairs are not known."""
    if sizes.pairs is None:
        return {}
    dtype = call.tensors[0].dtype
    return {
        matrix_unit(dtype, call.matmul_precision): 2.0 * sizes.pairs * per_pair,
        vector_unit(dtype): (softmax + bias) * sizes.pairs + per_row * sizes.rows,
    }


def forward(places: ArgumentPositions) -> Callable[[Call], Cost]:
    """Cost of attention(query, key, value, …); writes output and log-sums."""

    def cost(call: Call) -> Cost:
        query, key, value = (call.tensor(i) for i in range(3))
        sizes, bias = _sizes(call, places), _bias(call, places)
        flop = _flop(call, sizes, sizes.d + sizes.e, SOFTMAX_FORWARD, bias is not None)
        output = dense((*query.shape[:-1], sizes.e), query.dtype)
        return work(flop, (query, key, value, bias), (output, dense((sizes.rows,), "fp32")))

    return cost


def backward(places: ArgumentPositions) -> Callable[[Call], Cost]:
    """Cost of attention_backward(grad, query, key, value, …). A row's sum of output · grad is a product over E."""

    def cost(call: Call) -> Cost:
        grad, query, key, value = (call.tensor(i) for i in range(4))
        sizes, bias = _sizes(call, places), _bias(call, places)
        flop = _flop(call, sizes, 3 * sizes.d + 2 * sizes.e, SOFTMAX_BACKWARD, bias is not None, 2.0 * sizes.e)
        read = (grad, query, key, value, bias, tensor_at(call, places.output), tensor_at(call, places.sums))
        return work(flop, read, [dense(t.shape, t.dtype) for t in (query, key, value)])

    return cost


def flex(call: Call) -> Cost:
    """flex_attention(query, key, value, score function, block mask, …): FLOP of the score function are not counted."""
    return forward(ArgumentPositions(3, block_mask=3))(
        replace(call, arguments=(*call.arguments[:3], call.arguments[4]))
    )


def flex_backward(call: Call) -> Cost:
    """flex_attention_backward(query, key, value, output, log-sums, gradient, …, block mask at 9, …)."""
    query, key, value, out, sums, grad = (call.tensor(i) for i in range(6))
    arguments = (grad, query, key, value, out, sums, call.arguments[9])
    return backward(ArgumentPositions(6, query=1, output=4, sums=5, block_mask=6))(replace(call, arguments=arguments))


def _bias(call: Call, places: ArgumentPositions) -> TensorSpec | None:
    return tensor_at(call, places.bias) if places.bias is not None else None


_FORWARD = "matrix 2·P·(D+E); vector 6·P (7 with an additive mask)"
_BACKWARD = "matrix 2·P·(3·D+2·E); vector 8·P (9 with an additive mask) + 2·B·H·Q·E"
_READ = "query, key, value, mask; output and B·H·Q log-sums (fp32)"
_READ_BACKWARD = "gradient, query, key, value, mask, output, log-sums; three gradients"

_FORWARDS = {
    "_scaled_dot_product_flash_attention_for_cpu": ArgumentPositions(4, bias=5),
    "_scaled_dot_product_flash_attention": ArgumentPositions(after_number(3, 4, 7), lower_right=True),
    "_scaled_dot_product_efficient_attention": ArgumentPositions(after_number(3, 4, 6), bias=3),
    "_scaled_dot_product_cudnn_attention": ArgumentPositions(after_number(3, 4, 6), bias=3),
    "_scaled_dot_product_fused_attention_overrideable": ArgumentPositions(after_number(3, 4, 5), bias=3),
    "_cudnn_attention_forward": ArgumentPositions(10, bias=3, sequences=4),
    "_flash_attention_forward": ArgumentPositions(
        8, sequences=3, left=11, given=(13, 15), time_first=True, lower_right=True
    ),
    "_efficient_attention_forward": ArgumentPositions(
        9, bias=3, sequences=4, given=(12,), width=13, kinds=True, time_first=True
    ),
}
_BACKWARDS = {
    "_scaled_dot_product_flash_attention_for_cpu_backward": ArgumentPositions(7, bias=8, query=1, output=4, sums=5),
    "_scaled_dot_product_flash_attention_backward": ArgumentPositions(
        11, query=1, output=4, sums=5, sequences=6, lower_right=True
    ),
    "_scaled_dot_product_efficient_attention_backward": ArgumentPositions(11, bias=4, query=1, output=5, sums=6),
    "_scaled_dot_product_cudnn_attention_backward": ArgumentPositions(
        14, bias=8, query=1, output=4, sums=5, sequences=9
    ),
    "_scaled_dot_product_fused_attention_overrideable_backward": ArgumentPositions(
        13, bias=4, query=1, output=6, sums=7
    ),
    "_cudnn_attention_backward": ArgumentPositions(14, bias=8, query=1, output=4, sums=5, sequences=9),
    "_flash_attention_backward": ArgumentPositions(
        11, query=1, output=4, sums=5, sequences=6, left=15, time_first=True, lower_right=True
    ),
    "_efficient_attention_backward": ArgumentPositions(
        14, bias=4, query=1, output=5, sums=10, sequences=6, width=18, kinds=True, time_first=True
    ),
}
_COMPOSITES = {
    "scaled_dot_product_attention": ArgumentPositions(5, bias=3),
    "_scaled_dot_product_attention_math": ArgumentPositions(5, bias=3),
}


def operators() -> list[Operator]:
    """Every fused attention; the outer CUDA forms are dispatch where the inner kernel is seen below them."""
    found = []
    for name, places in {**_FORWARDS, **_BACKWARDS, **_COMPOSITES}.items():
        backwards = name in _BACKWARDS
        inner = name.replace("_scaled_dot_product", "").replace("attention", "attention_forward")
        inner = inner.replace("_forward_backward", "_backward")
        found += same(
            name,
            "attention",
            (backward if backwards else forward)(places),
            _BACKWARD if backwards else _FORWARD,
            _READ_BACKWARD if backwards else _READ,
            kind="dispatch" if name in _COMPOSITES else "work",
            delegates=(inner,) if inner in _FORWARDS or inner in _BACKWARDS else (),
            variant=partial(masks.text, places=places),
        )
    found += same("flex_attention", "attention", flex, f"{_FORWARD}; of a block mask whole blocks", _READ)
    found += same(
        "flex_attention_backward",
        "attention",
        flex_backward,
        f"{_BACKWARD}; of a block mask whole blocks",
        _READ_BACKWARD,
    )
    return found
