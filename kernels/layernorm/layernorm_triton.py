"""LayerNorm in Triton: a program holds whole rows, so that each is read once.

Legend: rows are all dimensions but the last, C channels. A block is ROWS × COLUMNS, COLUMNS the power of two from C on.
"""

import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch, multiprocessors

FORWARD_SWEEP = {"ROWS": (1, 2, 4, 8), "num_warps": (2, 4, 8)}
ADD_DX, ADD_DWEIGHT, ADD_DBIAS = 1, 2, 4  # bits of `add`: outputs that are added to
BACKWARD_SWEEP = {"ROWS": (1, 2, 4), "PER_PROCESSOR": (2, 4), "STAGES": (1, 3), "num_warps": (4, 8)}


@triton.jit
def layernorm_forward_kernel(
    x, weight, bias, y, mean, rstd, rows, channels, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """y, mean and rstd of ROWS whole rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    is_row, is_column = row < rows, column < channels
    inside = is_row[:, None] & is_column[None, :]
    at = row.to(tl.int64)[:, None] * channels + column[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    middle = tl.sum(value, 1) / channels
    centred = tl.where(inside, value - middle[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / channels + eps)
    w = tl.load(weight + column, mask=is_column).to(tl.float32)
    b = tl.load(bias + column, mask=is_column).to(tl.float32)
    tl.store(y + at, centred * scale[:, None] * w[None, :] + b[None, :], mask=inside)
    tl.store(mean + row, middle, mask=is_row)
    tl.store(rstd + row, scale, mask=is_row)


@triton.jit
def layernorm_backward_kernel(
    dy, x, weight, mean, rstd, dx, partial, rows, channels,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """dx of every PROGRAMS-th block of rows, with ADD added to what is there, and their sums for dweight and dbias
    into partial (PROGRAMS, 2, C)."""
    column = tl.arange(0, COLUMNS)
    is_column = column < channels
    w = tl.load(weight + column, mask=is_column, other=0.0).to(tl.float32)[None, :]
    dweight = tl.zeros((ROWS, COLUMNS), tl.float32)
    dbias = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        is_row = row < rows
        inside = is_row[:, None] & is_column[None, :]
        at = row.to(tl.int64)[:, None] * channels + column[None, :]
        upstream = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        middle = tl.load(mean + row, mask=is_row, other=0.0)[:, None]
        scale = tl.load(rstd + row, mask=is_row, other=0.0)[:, None]
        normal = tl.where(inside, (value - middle) * scale, 0.0)
        dnormal = upstream * w
        shift = tl.sum(dnormal, 1)[:, None] / channels
        slope = tl.sum(dnormal * normal, 1)[:, None] / channels
        result = scale * (dnormal - shift - normal * slope)
        if ADD:
            result += tl.load(dx + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx + at, result, mask=inside)
        dweight += upstream * normal
        dbias += upstream
    sums = partial + tl.program_id(0) * 2 * channels + column
    tl.store(sums, tl.sum(dweight, 0), mask=is_column)
    tl.store(sums + channels, tl.sum(dbias, 0), mask=is_column)


@triton.jit
def layernorm_backward_sum_kernel(
    partial, dweight, dbias, parts, channels,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ADD_DWEIGHT: tl.constexpr, ADD_DBIAS: tl.constexpr,
):  # fmt: skip
    """Sum partial (parts, 2, C) over its parts, for COLUMNS of the 2·C columns, always in the same order."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, parts, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < parts)[:, None] & (column < 2 * channels)[None, :]
        total += tl.load(partial + row[:, None] * 2 * channels + column[None, :], mask=inside, other=0.0)
    result = tl.sum(total, 0)
    of_weight, of_bias = column < channels, (column >= channels) & (column < 2 * channels)
    if ADD_DWEIGHT:
        result += tl.load(dweight + column, mask=of_weight, other=0.0).to(tl.float32)
    if ADD_DBIAS:
        result += tl.load(dbias + (column - channels), mask=of_bias, other=0.0).to(tl.float32)
    tl.store(dweight + column, result, mask=of_weight)
    tl.store(dbias + (column - channels), result, mask=of_bias)


def forward_blocks(rows, channels, eps, itemsize):
    """About 16 KiB of rows a program; a warp for each 512 columns."""
    columns = next_power_of_2(channels)
    return {"ROWS": max(1, min(8, 4096 // columns)), "num_warps": max(4, min(16, columns // 512))}


def backward_blocks(rows, channels, *add, itemsize):
    """The sums for dweight and dbias stay in registers: few rows at a time, read two steps ahead."""
    columns = next_power_of_2(channels)
    return {
        "ROWS": max(1, min(4, 2048 // columns)),
        "PER_PROCESSOR": 8 // itemsize,
        "STAGES": 3,
        "num_warps": max(4, min(16, columns // 256)),
    }


@launch(forward_blocks, FORWARD_SWEEP)
def layernorm_forward(x, weight, bias, y, mean, rstd, rows, channels, eps, ROWS, **meta):
    """Launch `layernorm_forward`: whole rows in registers, read once."""
    columns = next_power_of_2(max(channels, 1))
    layernorm_forward_kernel[(cdiv(rows, ROWS),)](
        x, weight, bias, y, mean, rstd, rows, channels, eps, ROWS, columns, **meta
    )


@launch(backward_blocks, BACKWARD_SWEEP)
def layernorm_backward(
    dy, x, weight, mean, rstd, dx, dweight, dbias, rows, channels, add, ROWS, PER_PROCESSOR, STAGES, **meta
):  # fmt: skip
    """Launch `layernorm_backward`: one pass; sums over rows by parts, in a fixed order."""
    columns = next_power_of_2(max(channels, 1))
    programs = max(1, min(cdiv(rows, ROWS), PER_PROCESSOR * multiprocessors(x)))
    partial = x.new_empty((programs, 2, channels), dtype=mean.dtype)
    layernorm_backward_kernel[(programs,)](
        dy, x, weight, mean, rstd, dx, partial, rows, channels, ROWS, columns, STAGES, add & ADD_DX, **meta
    )
    layernorm_backward_sum_kernel[(cdiv(2 * channels, 16),)](
        partial, dweight, dbias, programs, channels, 64, 16, add & ADD_DWEIGHT, add & ADD_DBIAS, num_warps=4
    )
