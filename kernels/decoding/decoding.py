"""A token's pass through a layer of a Llama: products of one row with weights, each fused with what lies around it.

Legend of the whole: x (B, C) enters a layer, whose norm, rotation and cache take no kernels of their own.

    q = decode_qkv(x, norm, wq, wk, wv, …)        and the new key and value go to the cache
    y = decode_attention(q, keys, values, …)
    x = decode_sum(y, wo, x)
    g = decode_swiglu(x, norm, gate, up, …)
    x = decode_sum(g, down, x)

Norm and head are decode_head, and decode_token takes the most likely token.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.errors import InputError
from perfkit.kernels import Family, Operation, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs

LEGEND = {
    "B": "sequences: few", "C": "channels", "M": "outputs", "F": "width of the MLP", "NH": "heads",
    "NKV": "heads of keys", "P": "pairs of a head", "HS": "head size", "S": "positions that the cache has room for",
    "R": "positions that angles are known of", "MQ": "NH·2P", "MK": "NKV·2P",
}  # fmt: skip
FAILURES = {2: "the position is not among the S of the cache, or the R that angles are known of."}
NORM = 4.0  # FLOP an element of a norm's row: its square and sum, and two products


def normed(x: Tensor, norm: Tensor, eps: float) -> Tensor:
    """RMSNorm of the rows of x (B, C)."""
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * norm


def head_reference(x: Tensor, norm: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The norm of x (B, C) by norm (C), times the transposed weight (M, C): (B, M)."""
    return normed(x, norm, eps) @ weight.T


def swiglu_reference(x: Tensor, norm: Tensor, gate: Tensor, up: Tensor, eps: float) -> Tensor:
    """SwiGLU of the norm of x (B, C) by norm (C), through gate and up (F, C): (B, F)."""
    import torch

    y = normed(x, norm, eps)
    return torch.nn.functional.silu(y @ gate.T) * (y @ up.T)


def sum_reference(x: Tensor, weight: Tensor, residual: Tensor) -> Tensor:
    """residual (B, M) + x (B, C) times the transposed weight (M, C): (B, M)."""
    return residual + x @ weight.T


def qkv_reference(
    x: Tensor, norm: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, cos: Tensor, sin: Tensor, position: Tensor,
    keys: Tensor, values: Tensor, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The new keys and values, and q."""
    import torch

    y, size = normed(x, norm, eps), keys.shape[-1]
    q, k, v = ((y @ w.T).view(len(x), -1, size) for w in (wq, wk, wv))
    c, s = cos[position], sin[position]
    keys, values = keys.clone(), values.clone()

    def turned(heads: Tensor) -> Tensor:
        first, second = heads.chunk(2, dim=-1)
        return torch.cat((first * c - second * s, second * c + first * s), dim=-1)

    keys[:, :, position], values[:, :, position] = turned(k)[:, :, None], v[:, :, None]
    return keys, values, turned(q).flatten(1)


def attention_reference(q: Tensor, keys: Tensor, values: Tensor, position: Tensor, scale: float) -> Tensor:
    """Attention of q (B, NH, HS) to keys and values (B, NKV, S, HS) up to position (1): (B, NH, HS)."""
    batch, heads, size = q.shape
    count = int(position) + 1
    k, v = (t[:, :, :count].repeat_interleave(heads // t.shape[1], dim=1) for t in (keys, values))
    weights = (scale * q[:, :, None] @ k.transpose(-1, -2)).softmax(dim=-1)
    return (weights @ v).view(batch, heads, size)


def token_reference(logits: Tensor) -> Tensor:
    """The place of the largest of each row of logits (B, M): (B, 1)."""
    return logits.argmax(-1, keepdim=True)


def product(call: Call, weights: range, normed: bool, vector: float) -> Cost:
    """x by the `weights`: 2 FLOP a product and its sum, a norm's for x, and `vector` more an output of the first one.

    Weights are read whole, once; what is written is an element an output of the first one.
    """
    x, outputs = call.tensor(0), 0
    item = ITEM_BYTES[x.dtype]
    rows = x.shape[0]
    outputs = sum(call.tensor(i).shape[0] for i in weights) * rows
    first = call.tensor(weights[0]).shape[0] * rows
    flop = {f"matrix_{x.dtype}": 2.0 * outputs * x.shape[1]}
    extra = vector * first + (NORM * x.numel if normed else 0.0)
    if extra:
        flop[f"vector_{x.dtype}"] = extra
    read = x.nbytes + sum(call.tensor(i).nbytes for i in weights) + (x.shape[1] * item if normed else 0)
    return Cost(flop, read, first * item)


def head_cost(call: Call) -> Cost:
    """Its product and its norm."""
    return product(call, range(2, 3), normed=True, vector=0.0)


def swiglu_cost(call: Call) -> Cost:
    """5 FLOP an output besides the products: exp, sum, division, two products."""
    return product(call, range(2, 4), normed=True, vector=5.0)


def sum_cost(call: Call) -> Cost:
    """1 FLOP an output besides the product, and the residual is read."""
    found = product(call, range(1, 2), normed=False, vector=1.0)
    return Cost(found.flop, found.bytes_read + call.tensor(2).nbytes, found.bytes_written)


def qkv_cost(call: Call) -> Cost:
    """A pair of q or k 6 FLOP to turn; one row of angles is read, and a new key and value written for each sequence."""
    x, cos, keys = call.tensor(0), call.tensor(5), call.tensor(8)
    found = product(call, range(2, 5), normed=True, vector=0.0)
    item, written = ITEM_BYTES[x.dtype], x.shape[0] * keys.shape[1] * keys.shape[3]  # of keys
    queries = found.bytes_written // item
    flop = dict(found.flop)
    flop[f"vector_{x.dtype}"] += 3.0 * (queries + written)
    read = found.bytes_read + 2 * cos.shape[1] * item + ITEM_BYTES["int64"]
    return Cost(flop, read, (queries + 2 * written) * item)


def attention_cost(call: Call) -> Cost:
    """Two products with the keys and values that count, a softmax of 6 FLOP a score.

    Unknown in a profile: only the GPU's memory holds how many of the S positions count; shapes do not show it.
    """
    q, keys, position = call.tensor(0), call.tensor(1), call.tensor(3)
    if position.value is None:
        return Cost({}, math.nan, math.nan)
    counted = position.value + 1
    scores = q.shape[0] * q.shape[1] * counted
    flop = {f"matrix_{q.dtype}": 4.0 * scores * q.shape[2], f"vector_{q.dtype}": 6.0 * scores}
    cache = 2 * keys.shape[0] * keys.shape[1] * counted * keys.shape[3] * ITEM_BYTES[keys.dtype]
    return Cost(flop, q.nbytes + cache + position.nbytes, q.nbytes)


def token_cost(call: Call) -> Cost:
    """A comparison a logit."""
    logits = call.tensor(0)
    return Cost({f"vector_{logits.dtype}": float(logits.numel)}, logits.nbytes, logits.shape[0] * ITEM_BYTES["int64"])


def head_inputs(make: Inputs, B: int, C: int, M: int) -> tuple[Any, ...]:
    """x (B, C), norm (C), weight (M, C), eps."""
    return make.normal(B, C), make.normal(C), make.normal(M, C), 1e-5


def swiglu_inputs(make: Inputs, B: int, C: int, F: int) -> tuple[Any, ...]:
    """x (B, C), norm (C), gate and up (F, C), eps; the weights small, as a model's are."""
    small = C**-0.5
    return make.normal(B, C), make.normal(C), make.normal(F, C, scale=small), make.normal(F, C, scale=small), 1e-5


def sum_inputs(make: Inputs, B: int, C: int, M: int) -> tuple[Any, ...]:
    """x (B, C), weight (M, C), residual (B, M)."""
    return make.normal(B, C), make.normal(M, C), make.normal(B, M)


def qkv_inputs(make: Inputs, B: int, C: int, NH: int, NKV: int, P: int, S: int) -> tuple[Any, ...]:
    """The new keys and values are as large as those of the cache, whose root mean square is what errors are held to."""
    size, angles = 2 * P, make.normal(S + 1, P, scale=3.0)
    weights = (make.normal(heads * size, C, scale=C**-0.5) for heads in (NH, NKV, NKV))
    cache = make.normal(B, NKV, S, size), make.normal(B, NKV, S, size)
    return make.normal(B, C), make.normal(C), *weights, angles.cos(), angles.sin(), make.integers(0, S, 1), *cache, 1e-5


def attention_inputs(make: Inputs, B: int, NH: int, NKV: int, HS: int, S: int) -> tuple[Any, ...]:
    """q (B, NH, HS), keys and values (B, NKV, S, HS), a position in the second half, scale."""
    cache = make.normal(B, NKV, S, HS), make.normal(B, NKV, S, HS)
    return make.normal(B, NH, HS), *cache, make.integers(S // 2, S, 1), HS**-0.5


def token_inputs(make: Inputs, B: int, M: int) -> tuple[Any, ...]:
    """One logit of each row is the largest by far: in bf16 several of thousands would be alike."""
    logits = make.normal(B, M)
    return (logits.scatter_(1, make.integers(0, M, B, 1), 100.0),)


def token_sizes(logits: Tensor) -> tuple[int, ...]:
    """B, M."""
    return tuple(logits.shape)


def product_sizes(x: Tensor, norm: Tensor, weight: Tensor, *rest: Any) -> tuple[int | float, ...]:
    """B, C, outputs, eps."""
    return *x.shape, weight.shape[0], float(rest[-1])


def sum_sizes(x: Tensor, weight: Tensor, residual: Tensor) -> tuple[int, ...]:
    """B, C, M."""
    return *x.shape, weight.shape[0]


def qkv_sizes(
    x: Tensor, norm: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, cos: Tensor, sin: Tensor, position: Tensor,
    keys: Tensor, values: Tensor, eps: float,
) -> tuple[int | float, ...]:  # fmt: skip
    """B, C, NH, NKV, P, S, R, eps."""
    _, shared, room, size = keys.shape
    if wk.shape[0] != shared * size or wq.shape[0] % size:
        raise InputError(
            f"Weights of {wq.shape[0]} and {wk.shape[0]} outputs do not fit a cache of {shared} heads of {size}.",
            "Give wq a multiple of a head's size, wk and wv as many outputs as the cache's heads have together.",
        )
    return *x.shape, wq.shape[0] // size, shared, size // 2, room, cos.shape[0], eps


def attention_sizes(q: Tensor, keys: Tensor, values: Tensor, position: Tensor, scale: float) -> tuple[int | float, ...]:
    """B, NH, NKV, HS, S, scale."""
    if q.shape[1] % keys.shape[1]:
        raise InputError(f"{q.shape[1]} heads cannot share {keys.shape[1]} of keys.", "Give a multiple of these.")
    return *q.shape[:2], keys.shape[1], q.shape[2], keys.shape[2], scale


# One of each, sizes that are not a multiple of the vector width, more rows than are taken together, Llama's sizes.
PRODUCTS = ((1, 1, 1), (3, 33, 7), (11, 72, 15), (1, 2048, 96), (1, 8192, 34), (2, 20000, 5), (35, 512, 18))
QKV = ((1, 1, 1, 1, 1, 1), (2, 33, 4, 2, 3, 5), (3, 64, 3, 1, 4, 9), (1, 2048, 8, 2, 32, 20), (34, 264, 4, 2, 6, 7))
ATTENTION = ((1, 1, 1, 1, 1), (2, 6, 2, 12, 7), (2, 4, 4, 8, 70), (1, 32, 8, 64, 300), (1, 3, 1, 128, 150))

PRODUCT_VERSIONS = versions(
    c=("loops, as the formula says", "the norm once, then the weight read once by threads, eight rows at a time"),
    cuda=(
        "one thread a pair of outputs",
        "one group of threads a pair, which asks for its weights before the kernel ahead of it has ended",
        "eight pairs by tensor cores for up to 32 rows at once; in fp32, or of one row, version 2",
    ),
)

# fp32: version 1 adds up to 20,000 products one after another. bf16: version 3 rounds x·norm, as PyTorch does.
PRODUCT_TOLERANCE = {"fp32": 5e-5, "bf16": 2e-2}
# Error of two such products multiplied: by the formula with x·norm rounded, 150 draws reach 1.4e-2 (median) to 2.9e-2.
GATED_TOLERANCE = PRODUCT_TOLERANCE | {"bf16": 4e-2}

FAMILY = Family(
    name="decoding",
    text=__doc__,
    legend=LEGEND,
    operations=(
        Operation(
            name="decode_qkv",
            category="matmul",
            schema="(Tensor x, Tensor norm, Tensor wq, Tensor wk, Tensor wv, Tensor cos, Tensor sin, Tensor position, "
            "Tensor(a!) keys, Tensor(b!) values, float eps) -> (Tensor q)",
            formula="y = x / √(mean x² + eps)·norm; q = turned(y·wqᵀ), keys[position] = turned(y·wkᵀ), "
            "values[position] = y·wvᵀ",
            shapes={"x": "B C", "norm": "C", "wq": "MQ C", "wk": "MK C", "wv": "MK C", "cos": "R P", "sin": "R P"}
            | {"position": "1", "keys": "B NKV S 2P", "values": "B NKV S 2P", "q": "B MQ"},
            dtypes={"position": "int64"},
            reference=qkv_reference,
            scalars=qkv_sizes,
            inputs=qkv_inputs,
            cases=tuple(dict(zip(("B", "C", "NH", "NKV", "P", "S"), case, strict=True)) for case in QKV),
            tolerance=PRODUCT_TOLERANCE,
            cost=qkv_cost,
            failures=FAILURES,
            implementations=PRODUCT_VERSIONS,
        ),
        Operation(
            name="decode_attention",
            category="attention",
            schema="(Tensor q, Tensor keys, Tensor values, Tensor position, float scale) -> (Tensor y)",
            formula="y = softmax(scale·q·keysᵀ)·values over the positions up to this one",
            shapes={"q": "B NH HS", "keys": "B NKV S HS", "values": "B NKV S HS", "position": "1", "y": "B NH HS"},
            dtypes={"position": "int64"},
            reference=attention_reference,
            scalars=attention_sizes,
            inputs=attention_inputs,
            cases=tuple(dict(zip(("B", "NH", "NKV", "HS", "S"), case, strict=True)) for case in ATTENTION),
            cost=attention_cost,
            failures=FAILURES,
            implementations=versions(
                c=("loops, as the formula says", "threads over heads of keys, vectors within a head"),
                cuda=(
                    "one thread an output",
                    "blocks of positions for all heads that share them, read before the kernel ahead has ended",
                ),
            ),
        ),
        Operation(
            name="decode_sum",
            category="matmul",
            schema="(Tensor x, Tensor weight, Tensor residual) -> (Tensor y)",
            formula="y = residual + x·weightᵀ",
            shapes={"x": "B C", "weight": "M C", "residual": "B M", "y": "B M"},
            reference=sum_reference,
            scalars=sum_sizes,
            inputs=sum_inputs,
            cases=tuple(dict(zip(("B", "C", "M"), case, strict=True)) for case in PRODUCTS),
            tolerance=PRODUCT_TOLERANCE,
            cost=sum_cost,
            implementations=PRODUCT_VERSIONS,
        ),
        Operation(
            name="decode_swiglu",
            category="matmul",
            schema="(Tensor x, Tensor norm, Tensor gate, Tensor up, float eps) -> (Tensor g)",
            formula="y = x / √(mean x² + eps)·norm; g = silu(y·gateᵀ)·(y·upᵀ)",
            shapes={"x": "B C", "norm": "C", "gate": "F C", "up": "F C", "g": "B F"},
            reference=swiglu_reference,
            scalars=product_sizes,
            inputs=swiglu_inputs,
            cases=tuple(dict(zip(("B", "C", "F"), case, strict=True)) for case in PRODUCTS),
            tolerance=GATED_TOLERANCE,
            cost=swiglu_cost,
            implementations=PRODUCT_VERSIONS,
        ),
        Operation(
            name="decode_head",
            category="matmul",
            schema="(Tensor x, Tensor norm, Tensor weight, float eps) -> (Tensor y)",
            formula="y = (x / √(mean x² + eps)·norm)·weightᵀ",
            shapes={"x": "B C", "norm": "C", "weight": "M C", "y": "B M"},
            reference=head_reference,
            scalars=product_sizes,
            inputs=head_inputs,
            cases=tuple(dict(zip(("B", "C", "M"), case, strict=True)) for case in PRODUCTS),
            tolerance=PRODUCT_TOLERANCE,
            cost=head_cost,
            implementations=PRODUCT_VERSIONS,
        ),
        Operation(
            name="decode_token",
            category="reduction",
            schema="(Tensor logits) -> (Tensor token)",
            formula="the first of the largest logits",
            shapes={"logits": "B M", "token": "B 1"},
            dtypes={"token": "int64"},
            reference=token_reference,
            scalars=token_sizes,
            inputs=token_inputs,
            cases=tuple({"B": b, "M": m} for b, m in ((1, 1), (3, 7), (2, 4096), (1, 128_256), (2, 50_257))),
            cost=token_cost,
            implementations=versions(
                c=("a loop",), cuda=("one thread a row", "blocks take parts of a row, a block then the best of these")
            ),
        ),
    ),
)
