"""RMSNorm in Triton, alone and of a residual sum: a program holds whole rows, so that each is read once.

Legend: rows are all dimensions but the last, C channels. A block is ROWS × COLUMNS, COLUMNS the power of two from C on.
"""

import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch, multiprocessors

FORWARD_SWEEP = {"ROWS": (1, 2, 4, 8), "num_warps": (2, 4, 8, 16)}
BACKWARD_SWEEP = {"ROWS": (1, 2, 4), "PER_PROCESSOR": (1, 2, 4), "STAGES": (1, 3), "num_warps": (4, 8, 16)}


@triton.jit
def rmsnorm_forward_kernel(
    a, b, weight, x, y, rstd, rows, channels, eps,
    RESIDUAL: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """With RESIDUAL x = a + b is written; without, a is what is normed, and b and x are not touched."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    is_row, is_column = row < rows, column < channels
    inside = is_row[:, None] & is_column[None, :]
    at = row.to(tl.int64)[:, None] * channels + column[None, :]
    value = tl.load(a + at, mask=inside, other=0.0).to(tl.float32)
    if RESIDUAL:
        value += tl.load(b + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(x + at, value, mask=inside)
        value = value.to(x.dtype.element_ty).to(tl.float32)  # the norm is that of what was written
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 1) / channels + eps)
    w = tl.load(weight + column, mask=is_column, other=0.0).to(tl.float32)
    tl.store(y + at, value * scale[:, None] * w[None, :], mask=inside)
    tl.store(rstd + row, scale, mask=is_row)


@triton.jit
def rmsnorm_backward_kernel(
    dy, x, weight, rstd, dx, partial, rows, channels,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """dx of every PROGRAMS-th block of rows, and their sums for dweight into partial (PROGRAMS, C)."""
    column = tl.arange(0, COLUMNS)
    is_column = column < channels
    w = tl.load(weight + column, mask=is_column, other=0.0).to(tl.float32)[None, :]
    dweight = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        is_row = row < rows
        inside = is_row[:, None] & is_column[None, :]
        at = row.to(tl.int64)[:, None] * channels + column[None, :]
        upstream = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(rstd + row, mask=is_row, other=0.0)[:, None]
        normal = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * scale
        dnormal = upstream * w
        slope = tl.sum(dnormal * normal, 1)[:, None] / channels
        tl.store(dx + at, scale * (dnormal - normal * slope), mask=inside)
        dweight += upstream * normal
    tl.store(partial + tl.program_id(0) * channels + column, tl.sum(dweight, 0), mask=is_column)


@triton.jit
def rmsnorm_backward_sum_kernel(partial, dweight, parts, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sum partial (parts, C) over its parts, always in the same order."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, parts, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < parts)[:, None] & (column < channels)[None, :]
        total += tl.load(partial + row[:, None] * channels + column[None, :], mask=inside, other=0.0)
    tl.store(dweight + column, tl.sum(total, 0), mask=column < channels)


def forward_blocks(rows, channels, eps, itemsize):
    """About 4096 elements a program; a warp for each 512 columns."""
    columns = next_power_of_2(max(channels, 1))
    return {"ROWS": max(1, min(8, 4096 // columns)), "num_warps": max(4, min(16, columns // 512))}


def backward_blocks(rows, channels, itemsize):
    """The sums for dweight stay in registers: few rows at a time."""
    columns = next_power_of_2(max(channels, 1))
    return {
        "ROWS": max(1, min(4, 2048 // columns)),
        "PER_PROCESSOR": max(1, min(8 // itemsize, 16384 // columns)),
        "STAGES": 3 if columns <= 2048 else 1,
        "num_warps": max(4, min(16, columns // 256)),
    }


@launch(forward_blocks, FORWARD_SWEEP)
def rmsnorm_forward(x, weight, y, rstd, rows, channels, eps, ROWS, **meta):
    """Launch `rmsnorm_forward`: whole rows in registers, read once."""
    columns = next_power_of_2(max(channels, 1))
    rmsnorm_forward_kernel[(cdiv(rows, ROWS),)](
        x, x, weight, y, y, rstd, rows, channels, eps, False, ROWS, columns, **meta
    )


@launch(forward_blocks, FORWARD_SWEEP)
def residual_rmsnorm_forward(a, b, weight, x, y, rstd, rows, channels, eps, ROWS, **meta):
    """Launch `residual_rmsnorm_forward`: whole rows in registers: x is written and not read again."""
    columns = next_power_of_2(max(channels, 1))
    rmsnorm_forward_kernel[(cdiv(rows, ROWS),)](
        a, b, weight, x, y, rstd, rows, channels, eps, True, ROWS, columns, **meta
    )


@launch(backward_blocks, BACKWARD_SWEEP)
def rmsnorm_backward(dy, x, weight, rstd, dx, dweight, rows, channels, ROWS, PER_PROCESSOR, STAGES, **meta):
    """Launch `rmsnorm_backward`: one pass; sums over rows by parts, in a fixed order."""
    columns = next_power_of_2(max(channels, 1))
    programs = max(1, min(cdiv(rows, ROWS), PER_PROCESSOR * multiprocessors(x)))
    partial = x.new_empty((programs, channels), dtype=rstd.dtype)
    rmsnorm_backward_kernel[(programs,)](
        dy, x, weight, rstd, dx, partial, rows, channels, ROWS, columns, STAGES, **meta
    )
    rmsnorm_backward_sum_kernel[(cdiv(channels, 16),)](partial, dweight, programs, channels, 64, 16, num_warps=4)
