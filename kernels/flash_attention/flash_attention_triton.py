"""Causal attention in Triton without a T × T matrix: online softmax forward, and backward from the kept log Σ exp.

Legend: T time, HS head size (SIZE), D the power of two from HS on; GROUP heads of queries in a row share one of keys
and values. A program owns some rows × D of a head's queries or keys and walks along the other side. Blocks wholly in
the future are never visited; those wholly in the past need no mask.
Scores are kept in units of log2, where exp is one instruction: s2 = log2(e)·scale·q·k.
"""

import math

import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import interpreted, launch

LOG2_E = math.log2(math.e)
FORWARD_SWEEP = {"QUERIES": (64, 128), "KEYS": (32, 64), "num_warps": (4, 8), "num_stages": (2, 3)}
BACKWARD_SWEEP = {"OWN": (64, 128), "OTHER": (32, 64), "num_warps": (4, 8), "num_stages": (2, 3)}


@triton.jit
def _dot(a, b, total, PRECISION: tl.constexpr):
    """total + a·b. Triton's interpreter multiplies bf16 by its bits: there, operands are made fp32 first."""
    if PRECISION == "interpreted":
        return tl.dot(a.to(tl.float32), b.to(tl.float32), total)
    return tl.dot(a, b, total, input_precision=PRECISION)


@triton.jit
def _load(x, first, time, SIZE: tl.constexpr, D: tl.constexpr, LENGTH: tl.constexpr, WHOLE: tl.constexpr):
    """LENGTH rows of one head from `first` on, 0 beyond T and HS. WHOLE: all of them lie within T."""
    row = first + tl.arange(0, LENGTH)
    i = tl.arange(0, D)
    at = row[:, None] * SIZE + i[None, :]
    if WHOLE and SIZE == D:
        return tl.load(x + at)
    if WHOLE:
        return tl.load(x + at, mask=i[None, :] < SIZE, other=0.0)
    return tl.load(x + at, mask=(row[:, None] < time) & (i[None, :] < SIZE), other=0.0)


@triton.jit
def _store(x, value, first, time, SIZE: tl.constexpr, D: tl.constexpr, LENGTH: tl.constexpr):
    row = first + tl.arange(0, LENGTH)
    i = tl.arange(0, D)
    tl.store(x + row[:, None] * SIZE + i[None, :], value, mask=(row[:, None] < time) & (i[None, :] < SIZE))


@triton.jit
def _attend(
    query, k, v, result, total, top, first_query, start, stop, time, factor,
    SIZE: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    DIAGONAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Go along the keys [start, stop): rescale what was summed whenever a row's greatest score grows."""
    row = first_query + tl.arange(0, QUERIES)
    for first in range(start, stop, KEYS):
        first = tl.multiple_of(first, KEYS)
        keys = _load(k, first, time, SIZE, D, KEYS, not DIAGONAL)
        score = _dot(query, tl.trans(keys), None, PRECISION)
        if DIAGONAL:
            key = first + tl.arange(0, KEYS)
            score = tl.where(key[None, :] <= row[:, None], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1) * factor)
        power = tl.math.exp2(score * factor - higher[:, None])
        shrink = tl.math.exp2(top - higher)
        total = total * shrink + tl.sum(power, 1)
        values = _load(v, first, time, SIZE, D, KEYS, not DIAGONAL)
        result = _dot(power.to(values.dtype), values, result * shrink[:, None], PRECISION)
        top = higher
    return result, total, top


@triton.jit
def flash_attention_forward_kernel(
    q, k, v, y, lse, time, factor, GROUP: tl.constexpr,
    SIZE: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One block of queries. The last blocks, which have most keys, come first, those of all heads."""
    first = (tl.num_programs(1) - 1 - tl.program_id(1)) * QUERIES
    head = tl.program_id(0).to(tl.int64) * time
    base = head * SIZE
    shared = (tl.program_id(0) // GROUP).to(tl.int64) * time * SIZE
    query = _load(q + base, first, time, SIZE, D, QUERIES, False)
    if factor < 0.0:  # the greatest score is found before scaling, so the scale must not turn the order round
        query = -query
        factor = -factor
    if factor == 0.0:  # nor make a number of what is masked by −∞
        query = query - query
        factor = 1.0
    result = tl.zeros((QUERIES, D), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    result, total, top = _attend(
        query, k + shared, v + shared, result, total, top, first, 0, first, time, factor,
        SIZE, D, QUERIES, KEYS, False, PRECISION,
    )  # fmt: skip
    stop = tl.minimum(first + QUERIES, time)
    result, total, top = _attend(
        query, k + shared, v + shared, result, total, top, first, first, stop, time, factor,
        SIZE, D, QUERIES, KEYS, True, PRECISION,
    )  # fmt: skip
    _store(y + base, result / total[:, None], first, time, SIZE, D, QUERIES)
    row = first + tl.arange(0, QUERIES)
    tl.store(lse + head + row, (top + tl.math.log2(total)) * 0.6931471805599453, mask=row < time)


@triton.jit
def flash_attention_products_kernel(dy, y, delta, time, SIZE: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr):
    """delta = Σ dy·y of each row."""
    first = tl.program_id(1) * QUERIES
    head = tl.program_id(0).to(tl.int64) * time
    upstream = _load(dy + head * SIZE, first, time, SIZE, D, QUERIES, False).to(tl.float32)
    output = _load(y + head * SIZE, first, time, SIZE, D, QUERIES, False).to(tl.float32)
    row = first + tl.arange(0, QUERIES)
    tl.store(delta + head + row, tl.sum(upstream * output, 1), mask=row < time)


@triton.jit
def _along_queries(
    keys, values, q, dy, lse, delta, dkeys, dvalues, first_head, first_key, start, stop, time, factor,
    GROUP: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr,
    DIAGONAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Go along the queries [start, stop) of GROUP heads, one after the other in one loop, which is pipelined."""
    key = first_key + tl.arange(0, OWN)
    blocks = tl.cdiv(tl.maximum(stop - start, 0), OTHER)
    for n in range(GROUP * blocks):
        head = first_head
        first = start + n * OTHER
        if GROUP > 1:
            head = (first_head + n // blocks).to(tl.int64)
            first = start + n % blocks * OTHER
        first = tl.multiple_of(first, OTHER)
        rows = head * time
        row = first + tl.arange(0, OTHER)
        query = _load(q + rows * SIZE, first, time, SIZE, D, OTHER, False)
        upstream = _load(dy + rows * SIZE, first, time, SIZE, D, OTHER, False)
        base = tl.load(lse + rows + row, mask=row < time, other=float("inf")) * 1.4426950408889634
        product = tl.load(delta + rows + row, mask=row < time, other=0.0)
        score = _dot(keys, tl.trans(query), None, PRECISION)  # OWN keys × OTHER queries
        weight = tl.math.exp2(score * factor - base[None, :])
        if DIAGONAL:
            weight = tl.where(key[:, None] <= row[None, :], weight, 0.0)
        dvalues = _dot(weight.to(upstream.dtype), upstream, dvalues, PRECISION)
        dweight = _dot(values, tl.trans(upstream), None, PRECISION)
        dscore = weight * (dweight - product[None, :])
        dkeys = _dot(dscore.to(query.dtype), query, dkeys, PRECISION)
    return dkeys, dvalues


@triton.jit
def flash_attention_backward_keys_kernel(
    dy, q, k, v, lse, delta, dk, dv, time, scale, factor, GROUP: tl.constexpr,
    SIZE: tl.constexpr, D: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk and dv of one block of keys: the diagonal queries of each head that shares them, then all later ones."""
    first = tl.program_id(1) * OWN
    head = tl.program_id(0).to(tl.int64)
    own = head * time * SIZE
    keys = _load(k + own, first, time, SIZE, D, OWN, False)
    values = _load(v + own, first, time, SIZE, D, OWN, False)
    dkeys = tl.zeros((OWN, D), tl.float32)
    dvalues = tl.zeros((OWN, D), tl.float32)
    dkeys, dvalues = _along_queries(
        keys, values, q, dy, lse, delta, dkeys, dvalues, head * GROUP, first, first, tl.minimum(first + OWN, time),
        time, factor, GROUP, SIZE, D, OWN, OTHER, True, PRECISION,
    )  # fmt: skip
    dkeys, dvalues = _along_queries(
        keys, values, q, dy, lse, delta, dkeys, dvalues, head * GROUP, first, first + OWN, time, time,
        factor, GROUP, SIZE, D, OWN, OTHER, False, PRECISION,
    )  # fmt: skip
    _store(dk + own, dkeys * scale, first, time, SIZE, D, OWN)
    _store(dv + own, dvalues, first, time, SIZE, D, OWN)


@triton.jit
def _along_keys(
    query, upstream, k, v, base, product, dquery, first_query, start, stop, time, factor,
    SIZE: tl.constexpr, D: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr,
    DIAGONAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row = first_query + tl.arange(0, OWN)
    for first in range(start, stop, OTHER):
        first = tl.multiple_of(first, OTHER)
        keys = _load(k, first, time, SIZE, D, OTHER, not DIAGONAL)
        values = _load(v, first, time, SIZE, D, OTHER, not DIAGONAL)
        score = _dot(query, tl.trans(keys), None, PRECISION)
        weight = tl.math.exp2(score * factor - base[:, None])
        if DIAGONAL:
            key = first + tl.arange(0, OTHER)
            weight = tl.where(key[None, :] <= row[:, None], weight, 0.0)
        dweight = _dot(upstream, tl.trans(values), None, PRECISION)
        dscore = weight * (dweight - product[:, None])
        dquery = _dot(dscore.to(keys.dtype), keys, dquery, PRECISION)
    return dquery


@triton.jit
def flash_attention_backward_queries_kernel(
    dy, q, k, v, lse, delta, dq, time, scale, factor, GROUP: tl.constexpr,
    SIZE: tl.constexpr, D: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of one block of queries: all earlier keys, then its diagonal ones."""
    first = (tl.num_programs(1) - 1 - tl.program_id(1)) * OWN
    head = tl.program_id(0).to(tl.int64) * time
    base = head * SIZE
    shared = (tl.program_id(0) // GROUP).to(tl.int64) * time * SIZE
    row = first + tl.arange(0, OWN)
    query = _load(q + base, first, time, SIZE, D, OWN, False)
    upstream = _load(dy + base, first, time, SIZE, D, OWN, False)
    normal = tl.load(lse + head + row, mask=row < time, other=float("inf")) * 1.4426950408889634
    product = tl.load(delta + head + row, mask=row < time, other=0.0)
    dquery = tl.zeros((OWN, D), tl.float32)
    dquery = _along_keys(
        query, upstream, k + shared, v + shared, normal, product, dquery, first, 0, first, time, factor,
        SIZE, D, OWN, OTHER, False, PRECISION,
    )  # fmt: skip
    dquery = _along_keys(
        query, upstream, k + shared, v + shared, normal, product, dquery, first, first, tl.minimum(first + OWN, time),
        time, factor, SIZE, D, OWN, OTHER, True, PRECISION,
    )  # fmt: skip
    _store(dq + base, dquery * scale, first, time, SIZE, D, OWN)


def precision(x):
    """fp32 products as three of the tensor cores' TF32 products, which keeps fp32's digits."""
    if interpreted():
        return "interpreted"
    return "tf32x3" if x.element_size() == 4 else "tf32"


def padded(size):
    """The tensor cores' least width is 16."""
    return max(16, next_power_of_2(size))


def forward_blocks(matrices, group, time, size, scale, itemsize):
    """Small blocks: several of them share a multiprocessor, one computing while another waits."""
    return {"QUERIES": 64, "KEYS": 64, "num_warps": 4, "num_stages": 2 if itemsize == 4 else 3}


def backward_blocks(matrices, group, time, size, scale, itemsize):
    """Two results of OWN × D stay in registers along with the scores; wider heads leave room for fewer blocks in
    flight."""
    if itemsize == 4:
        return {"OWN": 64, "OTHER": 32, "num_warps": 4, "num_stages": 2}
    narrow = padded(size) <= 64
    return {"OWN": 64, "OTHER": 32 if narrow else 64, "num_warps": 4, "num_stages": 3 if narrow else 2}


@launch(forward_blocks, FORWARD_SWEEP)
def flash_attention_forward(q, k, v, y, lse, matrices, group, time, size, scale, QUERIES, **meta):
    """Launch `flash_attention_forward`: blocks of queries on the tensor cores, online softmax."""
    grid = matrices, cdiv(time, QUERIES)
    flash_attention_forward_kernel[grid](
        q, k, v, y, lse, time, scale * LOG2_E, group, size, padded(size), QUERIES, PRECISION=precision(q), **meta
    )  # fmt: skip


@launch(backward_blocks, BACKWARD_SWEEP)
def flash_attention_backward(dy, q, k, v, y, lse, dq, dk, dv, matrices, group, time, size, scale, OWN, **meta):
    """Launch `flash_attention_backward`: one kernel for dk and dv, one for dq."""
    delta = lse.new_empty(lse.shape)
    blocks, factor = cdiv(time, OWN), scale * LOG2_E
    constants = {"GROUP": group, "SIZE": size, "D": padded(size), "OWN": OWN, "PRECISION": precision(q), **meta}
    flash_attention_products_kernel[matrices, cdiv(time, 64)](dy, y, delta, time, size, padded(size), 64)
    flash_attention_backward_keys_kernel[matrices // group, blocks](
        dy, q, k, v, lse, delta, dk, dv, time, scale, factor, **constants
    )
    flash_attention_backward_queries_kernel[matrices, blocks](
        dy, q, k, v, lse, delta, dq, time, scale, factor, **constants
    )
