"""A bias in Triton: its gradient by parts in a fixed order, and bias + ReLU on blocks of ROWS × COLUMNS."""

import torch
import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch, row_tile
from perfkit.kernels.triton.parts import parts_of_rows, sum_parts

SUM_SWEEP = {"ROWS": (16, 32), "COLUMNS": (64, 128), "PER_PROCESSOR": (4, 8), "STAGES": (1, 3), "num_warps": (4,)}
TILE_SWEEP = {"ROWS": (4, 8, 16, 32), "num_warps": (4, 8)}
FLAT_SWEEP = {"BLOCK": (512, 1024, 2048, 4096), "num_warps": (4, 8)}


@triton.jit
def bias_gradient_kernel(x, sums, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr):
    """Sums over every PARTS-th block of rows, into sums (PARTS, columns); PARTS is the grid's second size."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in tl.range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        total += tl.load(x + row.to(tl.int64)[:, None] * columns + column[None, :], mask=inside, other=0.0).to(
            tl.float32
        )
    tl.store(sums + tl.program_id(1) * columns + column, tl.sum(total, 0), mask=column < columns)


@triton.jit
def bias_relu_forward_kernel(x, bias, y, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Compute one block of `bias_relu_forward`."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    value = tl.load(x + at, mask=inside).to(tl.float32)
    value += tl.load(bias + column, mask=column < columns).to(tl.float32)[None, :]
    tl.store(y + at, tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL), mask=inside)


@triton.jit
def bias_relu_backward_kernel(dy, y, dx, n, BLOCK: tl.constexpr):
    """Compute one block of `bias_relu_backward`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    upstream = tl.load(dy + at, mask=at < n).to(tl.float32)
    tl.store(dx + at, tl.where(tl.load(y + at, mask=at < n) > 0, upstream, 0.0), mask=at < n)


def sum_blocks(rows, columns, itemsize):
    """128 bytes of a row side by side; enough parts of the rows to fill the multiprocessors."""
    width = min(256 // itemsize, next_power_of_2(max(columns, 1)))
    return {"ROWS": 32, "COLUMNS": width, "PER_PROCESSOR": 4, "STAGES": 3, "num_warps": 4}


def tile_blocks(rows, columns, itemsize):
    """Take 8 KiB of a row or of several short rows for each block."""
    return {"ROWS": row_tile(columns, 8192 // itemsize)[0], "num_warps": 4}


def flat_blocks(n, itemsize):
    """A thread takes 32 bytes of each tensor: two loads in flight."""
    return {"BLOCK": 4096 // itemsize, "num_warps": 4}


@launch(sum_blocks, SUM_SWEEP)
def bias_gradient(dy, db, rows, columns, ROWS, COLUMNS, PER_PROCESSOR, STAGES, **meta):
    """Sums of parts of the rows, as many as fill the GPU, then their sum."""
    across = cdiv(columns, COLUMNS)
    count = parts_of_rows(dy, rows, ROWS, across, PER_PROCESSOR)
    parts = dy.new_empty((count, columns), dtype=torch.float32)
    bias_gradient_kernel[(across, count)](dy, parts, rows, columns, ROWS, COLUMNS, STAGES, **meta)
    sum_parts(parts, db)


@launch(tile_blocks, TILE_SWEEP)
def bias_relu_forward(x, bias, y, rows, columns, ROWS, **meta):
    """Launch `bias_relu_forward`: one pass."""
    width = row_tile(columns, 1)[1]
    bias_relu_forward_kernel[(cdiv(rows, ROWS), cdiv(columns, width))](x, bias, y, rows, columns, ROWS, width, **meta)


@launch(flat_blocks, FLAT_SWEEP)
def bias_relu_backward(dy, y, dx, n, BLOCK, **meta):
    """Launch `bias_relu_backward`: one pass."""
    bias_relu_backward_kernel[(cdiv(n, BLOCK),)](dy, y, dx, n, BLOCK, **meta)
