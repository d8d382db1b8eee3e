"""Scaled dot product attention as one operator: two products forward, five backward, and the softmax between.

B batch, H query heads, Q queries, K keys, D head size, E head size of the values. A causal mask is **not** halved, as
in FlopCounterMode: what a kernel skips shows up as efficiency. Backward recomputes the scores, so it has five products.
The softmax counts 6 per score forward (scale, max, subtract, exp, sum, divide) and 8 backward (scale, subtract the
log-sum, exp to recompute; then multiply, row sum, subtract, multiply, scale).
"""

from __future__ import annotations

from collections.abc import Callable

from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import dense, matrix_unit, product, tensor_at, vector_unit, work

# Operations on each of the B·H·Q·K scores.
SOFTMAX_FORWARD, SOFTMAX_BACKWARD = 6, 8


def _sizes(query: TensorSpec, key: TensorSpec, value: TensorSpec, heads_first: bool) -> tuple[int, int, int, int, int]:
    """(B·H, Q, K, D, E); tensors are (…, H, T, D), or (…, T, H, D) in the inner flash and efficient kernels."""
    time, head = (-2, -3) if heads_first else (-3, -2)
    if query.shape[-1] != key.shape[-1] or key.shape[time] != value.shape[time]:
        raise ValueError("query, key and value do not fit together")
    batch = product(query.shape[:-3]) * query.shape[head]
    return batch, query.shape[time], key.shape[time], query.shape[-1], value.shape[-1]


def _flop(call: Call, dtype: str, scores: float, per_score: float, softmax: int) -> dict[str, float]:
    return {
        matrix_unit(dtype, call.matmul_precision): 2.0 * scores * per_score,
        vector_unit(dtype): float(softmax) * scores,
    }


def _with_bias(call: Call, flop: dict[str, float], bias: TensorSpec | None, scores: float, dtype: str) -> None:
    if bias is not None:
        flop[vector_unit(dtype)] += scores


def forward(bias_at: int, heads_first: bool = True) -> Callable[[Call], Cost]:
    """Cost of attention(query, key, value, …) with an additive mask at `bias_at`; writes output and log-sums."""

    def cost(call: Call) -> Cost:
        query, key, value = call.tensor(0), call.tensor(1), call.tensor(2)
        batch, queries, keys, d, e = _sizes(query, key, value, heads_first)
        scores, bias = float(batch * queries * keys), tensor_at(call, bias_at)
        flop = _flop(call, query.dtype, scores, d + e, SOFTMAX_FORWARD)
        _with_bias(call, flop, bias, scores, query.dtype)
        output = dense((*query.shape[:-1], e), query.dtype)
        return work(flop, (query, key, value, bias), (output, dense((batch, queries), "fp32")))

    return cost


def backward(output_at: int, bias_at: int, heads_first: bool = True) -> Callable[[Call], Cost]:
    """Cost of attention_backward(grad, query, key, value, …); the output is at `output_at`, the log-sums behind it."""

    def cost(call: Call) -> Cost:
        grad, query, key, value = (call.tensor(i) for i in range(4))
        batch, queries, keys, d, e = _sizes(query, key, value, heads_first)
        scores, bias = float(batch * queries * keys), tensor_at(call, bias_at)
        flop = _flop(call, query.dtype, scores, 3 * d + 2 * e, SOFTMAX_BACKWARD)
        _with_bias(call, flop, bias, scores, query.dtype)
        # The row sums of output · grad: multiply and add over E.
        flop[vector_unit(query.dtype)] += 2.0 * batch * queries * e
        read = (grad, query, key, value, bias, tensor_at(call, output_at), tensor_at(call, output_at + 1))
        written = [dense(t.shape, t.dtype) for t in (query, key, value)]
        return work(flop, read, written)

    return cost


_FORWARD = "matrix 2·B·H·Q·K·(D+E); vector 6·B·H·Q·K (7 with an additive mask)"
_BACKWARD = "matrix 2·B·H·Q·K·(3·D+2·E); vector 8·B·H·Q·K (9 with an additive mask) + 2·B·H·Q·E"
_READ = "query, key, value, mask; output and B·H·Q log-sums (fp32)"
_READ_BACKWARD = "gradient, query, key, value, mask, output, log-sums; three gradients"


def operators() -> list[Operator]:
    """Every fused attention; the outer CUDA forms are dispatch where the inner kernel is seen below them."""
    prefix = "_scaled_dot_product_"

    def fwd(names: str, bias_at: int, heads_first: bool = True, delegates: tuple[str, ...] = ()) -> list[Operator]:
        return same(names, "attention", forward(bias_at, heads_first), _FORWARD, _READ, delegates=delegates)

    def bwd(
        names: str, output_at: int, bias_at: int, heads_first: bool = True, delegates: tuple[str, ...] = ()
    ) -> list[Operator]:
        cost = backward(output_at, bias_at, heads_first)
        return same(names, "attention", cost, _BACKWARD, _READ_BACKWARD, delegates=delegates)

    return [
        *fwd(f"{prefix}flash_attention_for_cpu", 5),
        *bwd(f"{prefix}flash_attention_for_cpu_backward", 4, 8),
        *fwd(f"{prefix}flash_attention", 99, delegates=("_flash_attention_forward",)),
        *bwd(f"{prefix}flash_attention_backward", 4, 99, delegates=("_flash_attention_backward",)),
        *fwd(f"{prefix}efficient_attention", 3, delegates=("_efficient_attention_forward",)),
        *bwd(f"{prefix}efficient_attention_backward", 5, 4, delegates=("_efficient_attention_backward",)),
        *fwd(f"{prefix}cudnn_attention", 3, delegates=("_cudnn_attention_forward",)),
        *bwd(f"{prefix}cudnn_attention_backward", 4, 8, delegates=("_cudnn_attention_backward",)),
        *fwd("_cudnn_attention_forward", 3),
        *bwd("_cudnn_attention_backward", 4, 8),
        *fwd("_flash_attention_forward", 99, heads_first=False),
        *bwd("_flash_attention_backward", 4, 99, heads_first=False),
        *fwd("_efficient_attention_forward", 3, heads_first=False),
        *bwd("_efficient_attention_backward", 5, 4, heads_first=False),
        *same("scaled_dot_product_attention", "attention", forward(3), _FORWARD, _READ, kind="dispatch"),
        *same(f"{prefix}attention_math", "attention", forward(3), _FORWARD, _READ, kind="dispatch"),
    ]
