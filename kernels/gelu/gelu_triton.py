"""GELU, tanh form, in Triton: 0.5·(1 + tanh u) is the sigmoid of 2u, so one exponential serves."""

import torch
import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch
from perfkit.kernels.triton.activations import gelu, gelu_slope
from perfkit.kernels.triton.fp8 import largest_of, magnitude, raise_amax
from perfkit.kernels.triton.parts import parts_of_rows, sum_parts

ROWS_SWEEP = {"ROWS": (8, 16, 32), "PER_PROCESSOR": (4, 8), "num_warps": (4, 8)}
SWEEP = {"BLOCK": (512, 1024, 2048, 4096), "num_warps": (4, 8)}


@triton.jit
def gelu_forward_kernel(x, y, n, BLOCK: tl.constexpr):
    """Compute one block of `gelu_forward`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(y + at, gelu(value), mask=at < n)


@triton.jit
def gelu_backward_kernel(dy, x, dx, n, BLOCK: tl.constexpr):
    """Compute one block of `gelu_backward`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    upstream = tl.load(dy + at, mask=at < n).to(tl.float32)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(dx + at, upstream * gelu_slope(value), mask=at < n)


@triton.jit
def gelu_bias_backward_kernel(dy, x, dx, parts, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """dx of every PARTS-th block of rows, and their sums into parts (PARTS, columns): PARTS programs a column."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        upstream = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        result = upstream * gelu_slope(tl.load(x + at, mask=inside, other=0.0).to(tl.float32))
        tl.store(dx + at, result, mask=inside)
        total += result
    tl.store(parts + tl.program_id(1) * columns + column, tl.sum(total, 0), mask=column < columns)


@triton.jit
def gelu_amax_forward_kernel(x, amax, y, n, BLOCK: tl.constexpr):
    """Compute one block of `gelu_amax_forward`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    result = gelu(tl.load(x + at, mask=at < n, other=0.0).to(tl.float32))
    tl.store(y + at, result, mask=at < n)
    raise_amax(amax, largest_of(result, y))


@triton.jit
def gelu_bias_amax_backward_kernel(
    dy, x, amax, dx, parts, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """`gelu_bias_backward_kernel` with the largest |dx|."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    largest = tl.zeros((ROWS, COLUMNS), tl.int32)
    for first in range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        upstream = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        result = upstream * gelu_slope(tl.load(x + at, mask=inside, other=0.0).to(tl.float32))
        tl.store(dx + at, result, mask=inside)
        total += result
        largest = tl.maximum(largest, magnitude(result))
    tl.store(parts + tl.program_id(1) * columns + column, tl.sum(total, 0), mask=column < columns)
    raise_amax(amax, largest_of(largest.to(tl.float32, bitcast=True), dx))


def blocks(n, itemsize):
    """A thread takes 32 bytes of each tensor: two loads in flight."""
    return {"BLOCK": 128 * 32 // itemsize, "num_warps": 4}


@launch(blocks, SWEEP)
def gelu_forward(x, y, n, BLOCK, **meta):
    """Launch `gelu_forward`: one pass; tanh by one exponential."""
    gelu_forward_kernel[(cdiv(n, BLOCK),)](x, y, n, BLOCK, **meta)


@launch(blocks, SWEEP)
def gelu_backward(dy, x, dx, n, BLOCK, **meta):
    """Launch `gelu_backward`: one pass; tanh by one exponential."""
    gelu_backward_kernel[(cdiv(n, BLOCK),)](dy, x, dx, n, BLOCK, **meta)


def row_blocks(rows, columns, itemsize):
    """128 bytes of a row side by side; enough parts of the rows to fill the multiprocessors."""
    width = min(256 // itemsize, next_power_of_2(max(columns, 1)))
    return {"ROWS": 16, "COLUMNS": width, "PER_PROCESSOR": 8, "num_warps": 4}


@launch(row_blocks, ROWS_SWEEP)
def gelu_bias_backward(dy, x, dx, db, rows, columns, ROWS, COLUMNS, PER_PROCESSOR, **meta):
    """Launch `gelu_bias_backward`: one pass; sums by parts, in a fixed order."""
    across = cdiv(columns, COLUMNS)
    count = parts_of_rows(dy, rows, ROWS, across, PER_PROCESSOR)
    parts = dy.new_empty((count, columns), dtype=torch.float32)
    gelu_bias_backward_kernel[(across, count)](dy, x, dx, parts, rows, columns, ROWS, COLUMNS, **meta)
    sum_parts(parts, db)


def amax_blocks(n, itemsize):
    """A thread takes 64 bytes of each tensor; a block compares what it has found once."""
    return {"BLOCK": 256 * 64 // itemsize, "num_warps": 8}


@launch(amax_blocks, SWEEP)
def gelu_amax_forward(x, amax, y, n, BLOCK, **meta):
    """Launch `gelu_amax_forward`: one pass; tanh by one exponential."""
    gelu_amax_forward_kernel[(cdiv(n, BLOCK),)](x, amax, y, n, BLOCK, **meta)


@launch(row_blocks, ROWS_SWEEP)
def gelu_bias_amax_backward(dy, x, amax, dx, db, rows, columns, ROWS, COLUMNS, PER_PROCESSOR, **meta):
    """Launch `gelu_bias_amax_backward`: one pass; sums by parts, in a fixed order."""
    across = cdiv(columns, COLUMNS)
    count = parts_of_rows(dy, rows, ROWS, across, PER_PROCESSOR)
    parts = dy.new_empty((count, columns), dtype=torch.float32)
    grid = across, count
    gelu_bias_amax_backward_kernel[grid](dy, x, amax, dx, parts, rows, columns, ROWS, COLUMNS, **meta)
    sum_parts(parts, db)
