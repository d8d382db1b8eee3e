"""Softmax over whole rows in Triton: short rows stay in registers, long ones are walked along twice.

Legend: N rows of M columns. The second walk along a long row finds it in the cache.
"""

import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch
from perfkit.kernels.triton.rows import load_block, logsumexp, place_row, store_block

SHORT = 8192  # columns of a row that one program still holds in registers
SWEEP = {"ROWS": (1, 2, 4), "BLOCK": (2048, 4096, 8192), "num_warps": (4, 8, 16)}


@triton.jit
def _short_forward(x, y, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    value = tl.load(x + at, mask=inside, other=float("-inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, 1)[:, None])
    tl.store(y + at, power / tl.sum(power, 1)[:, None], mask=inside)


@triton.jit
def _short_backward(dy, y, dx, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    upstream = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(upstream * weight, 1)[:, None]
    tl.store(dx + at, weight * (upstream - mean), mask=inside)


@triton.jit
def _long_forward(x, y, columns, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    origin, lead, end, limit = place_row(tl.program_id(0), columns, columns, WIDE)
    lse = logsumexp(x + origin, lead, end, limit, BLOCK)
    for first in range(0, end, BLOCK):
        value = load_block(x + origin, first, lead, end, limit, 0.0, BLOCK)
        store_block(y + origin, tl.exp(value - lse), first, lead, end, BLOCK)


@triton.jit
def _long_backward(dy, y, dx, columns, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    origin, lead, end, limit = place_row(tl.program_id(0), columns, columns, WIDE)
    products = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, end, BLOCK):
        upstream = load_block(dy + origin, first, lead, end, limit, 0.0, BLOCK)
        products += upstream * load_block(y + origin, first, lead, end, limit, 0.0, BLOCK)
    mean = tl.sum(products, 0)
    for first in range(0, end, BLOCK):
        upstream = load_block(dy + origin, first, lead, end, limit, 0.0, BLOCK)
        weight = load_block(y + origin, first, lead, end, limit, 0.0, BLOCK)
        store_block(dx + origin, weight * (upstream - mean), first, lead, end, BLOCK)


def blocks(rows, columns, itemsize):
    """At least 2048 elements a program when rows are short; 16 warps along a long one."""
    if columns > SHORT:
        return {"ROWS": 1, "BLOCK": 8192, "num_warps": 16}
    width = next_power_of_2(max(columns, 1))
    held = max(1, 2048 // width)
    return {"ROWS": held, "BLOCK": width, "num_warps": max(1, min(16, held * width // 512))}


@launch(blocks, SWEEP)
def softmax_forward(x, y, rows, columns, ROWS, BLOCK, **meta):
    if columns > SHORT:
        _long_forward[(rows,)](x, y, columns, rows * columns % 16 == 0, BLOCK, **meta)
    else:
        _short_forward[(cdiv(rows, ROWS),)](x, y, rows, columns, ROWS, next_power_of_2(max(columns, 1)), **meta)


@launch(blocks, SWEEP)
def softmax_backward(dy, y, dx, rows, columns, ROWS, BLOCK, **meta):
    if columns > SHORT:
        _long_backward[(rows,)](dy, y, dx, columns, rows * columns % 16 == 0, BLOCK, **meta)
    else:
        _short_backward[(cdiv(rows, ROWS),)](dy, y, dx, rows, columns, ROWS, next_power_of_2(max(columns, 1)), **meta)
