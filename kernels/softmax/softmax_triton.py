"""Softmax over whole rows in Triton: short rows stay in registers, long ones are walked along twice.

Legend: N rows of M columns. The second walk along a long row finds it in the cache.
"""

import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch
from perfkit.kernels.triton.rows import (
    LOG2_E,
    last_block,
    load_block,
    load_inner,
    logsumexp,
    place_row,
    store_block,
    store_inner,
)

SHORT = 8192  # columns of a row that one program still holds in registers
SWEEP = {"ROWS": (1, 2), "BLOCK": (4096, 8192), "STAGES": (1, 3), "HINTS": (0, 1), "num_warps": (4, 16)}


@triton.jit
def softmax_short_forward_kernel(x, y, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """ROWS whole rows in registers."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    value = tl.load(x + at, mask=inside, other=float("-inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, 1)[:, None])
    tl.store(y + at, power * (1.0 / tl.sum(power, 1))[:, None], mask=inside)


@triton.jit
def softmax_short_backward_kernel(dy, y, dx, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """ROWS whole rows in registers."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    upstream = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(upstream * weight, 1)[:, None]
    tl.store(dx + at, weight * (upstream - mean), mask=inside)


@triton.jit
def softmax_long_forward_kernel(
    x, y, columns, WIDE: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr, KEEP: tl.constexpr, DROP: tl.constexpr
):
    """A row: its logsumexp first, then y from a second reading."""
    origin, lead, end, limit = place_row(tl.program_id(0), columns, columns, WIDE)
    lse = logsumexp(x + origin, lead, end, limit, BLOCK, STAGES, KEEP)
    last = last_block(end, BLOCK)
    value = load_block(x + origin, 0, lead, end, limit, 0.0, BLOCK)
    store_block(y + origin, tl.math.exp2((value - lse) * LOG2_E), 0, lead, end, BLOCK)
    for first in tl.range(BLOCK, last, BLOCK, num_stages=STAGES):
        value = load_inner(x + origin, first, BLOCK, DROP)
        store_inner(y + origin, tl.math.exp2((value - lse) * LOG2_E), first, BLOCK, DROP)
    if last > 0:
        value = load_block(x + origin, last, lead, end, limit, 0.0, BLOCK)
        store_block(y + origin, tl.math.exp2((value - lse) * LOG2_E), last, lead, end, BLOCK)


@triton.jit
def softmax_long_backward_kernel(
    dy, y, dx, columns,
    WIDE: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr, KEEP: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """A row: Σ dy·y first, then dx from a second reading."""
    origin, lead, end, limit = place_row(tl.program_id(0), columns, columns, WIDE)
    last = last_block(end, BLOCK)
    upstream = load_block(dy + origin, 0, lead, end, limit, 0.0, BLOCK)
    products = upstream * load_block(y + origin, 0, lead, end, limit, 0.0, BLOCK)
    for first in tl.range(BLOCK, last, BLOCK, num_stages=STAGES):
        products += load_inner(dy + origin, first, BLOCK, KEEP) * load_inner(y + origin, first, BLOCK, KEEP)
    if last > 0:
        upstream = load_block(dy + origin, last, lead, end, limit, 0.0, BLOCK)
        products += upstream * load_block(y + origin, last, lead, end, limit, 0.0, BLOCK)
    mean = tl.sum(products, 0)
    upstream = load_block(dy + origin, 0, lead, end, limit, 0.0, BLOCK)
    weight = load_block(y + origin, 0, lead, end, limit, 0.0, BLOCK)
    store_block(dx + origin, weight * (upstream - mean), 0, lead, end, BLOCK)
    for first in tl.range(BLOCK, last, BLOCK, num_stages=STAGES):
        upstream = load_inner(dy + origin, first, BLOCK, DROP)
        weight = load_inner(y + origin, first, BLOCK, DROP)
        store_inner(dx + origin, weight * (upstream - mean), first, BLOCK, DROP)
    if last > 0:
        upstream = load_block(dy + origin, last, lead, end, limit, 0.0, BLOCK)
        weight = load_block(y + origin, last, lead, end, limit, 0.0, BLOCK)
        store_block(dx + origin, weight * (upstream - mean), last, lead, end, BLOCK)


def blocks(rows, columns):
    """At least 2048 elements a program, in a few rows."""
    width = next_power_of_2(max(columns, 1))
    held = max(1, 2048 // width)
    return {"ROWS": held, "BLOCK": width, "STAGES": 1, "HINTS": 0, "num_warps": max(1, min(16, held * width // 512))}


def forward_blocks(rows, columns, itemsize):
    """16 warps along a long row, two blocks ahead of what they add up."""
    if columns <= SHORT:
        return blocks(rows, columns)
    return {"ROWS": 1, "BLOCK": 8192 if itemsize == 4 else 4096, "STAGES": 3, "HINTS": 1, "num_warps": 16}


def backward_blocks(rows, columns, itemsize):
    """Two tensors are read: 16 warps have enough under way without reading ahead."""
    if columns <= SHORT:
        return blocks(rows, columns)
    return {"ROWS": 1, "BLOCK": 8192 if itemsize == 4 else 4096, "STAGES": 1, "HINTS": 1, "num_warps": 16}


def hints(asked):
    """Return cache hints: keep a row until it is read again, but not written data."""
    return ("evict_last", "evict_first") if asked else ("", "")


@launch(forward_blocks, SWEEP)
def softmax_forward(x, y, rows, columns, ROWS, BLOCK, STAGES, HINTS, **meta):
    """Launch `softmax_forward`: short rows in registers, long ones twice through the cache."""
    if columns > SHORT:
        softmax_long_forward_kernel[(rows,)](
            x, y, columns, rows * columns % 16 == 0, BLOCK, STAGES, *hints(HINTS), **meta
        )
    else:
        softmax_short_forward_kernel[(cdiv(rows, ROWS),)](
            x, y, rows, columns, ROWS, next_power_of_2(max(columns, 1)), **meta
        )


@launch(backward_blocks, SWEEP)
def softmax_backward(dy, y, dx, rows, columns, ROWS, BLOCK, STAGES, HINTS, **meta):
    """Launch `softmax_backward`: short rows in registers, long ones twice through the cache."""
    if columns > SHORT:
        softmax_long_backward_kernel[(rows,)](
            dy, y, dx, columns, rows * columns % 16 == 0, BLOCK, STAGES, *hints(HINTS), **meta
        )
    else:
        softmax_short_backward_kernel[(cdiv(rows, ROWS),)](
            dy, y, dx, rows, columns, ROWS, next_power_of_2(max(columns, 1)), **meta
        )
