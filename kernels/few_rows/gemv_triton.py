"""Products of a few rows with a weight in Triton: a program makes OUTS outputs of ROWS rows, the weight read once.

Legend: N rows of x (ROWS of them at once), K columns, M outputs of a row.
"""

import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch

SWEEP = {"OUTS": (2, 4, 8, 16), "COLUMNS": (256, 512, 1024), "num_warps": (2, 4, 8)}
MOST_ROWS = 8  # at once: their sums stay in registers


@triton.jit
def gemv_kernel(
    x, weight, bias, y, N, K, M,
    BIAS: tl.constexpr, ROWS: tl.constexpr, OUTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute one block of `gemv`."""
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    out = tl.program_id(0) * OUTS + tl.arange(0, OUTS)
    is_row, is_out = row < N, out < M
    of_x = x + row.to(tl.int64)[:, None] * K
    of_weight = weight + out.to(tl.int64)[:, None] * K
    sums = tl.zeros((ROWS, OUTS, COLUMNS), tl.float32)
    for first in range(0, K, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        inside = (column < K)[None, :]
        w = tl.load(of_weight + column[None, :], mask=is_out[:, None] & inside, other=0.0).to(tl.float32)
        a = tl.load(of_x + column[None, :], mask=is_row[:, None] & inside, other=0.0).to(tl.float32)
        sums += a[:, None, :] * w[None, :, :]
    total = tl.sum(sums, 2)
    if BIAS:
        total += tl.load(bias + out, mask=is_out, other=0.0).to(tl.float32)[None, :]
    at = row.to(tl.int64)[:, None] * M + out[None, :]
    tl.store(y + at, total, mask=is_row[:, None] & is_out[None, :])


def blocks(N, K, M, itemsize):
    """A thread has about 64 bytes of the weight in flight, and 32 sums: fewer outputs for more rows."""
    rows = rows_of(N)
    columns = min(512, next_power_of_2(max(K, 1)))
    return {"OUTS": max(1, min(16 // itemsize, 16 // rows)), "COLUMNS": columns, "num_warps": 4}


def rows_of(N):
    """Rows of a program: a power of two, `MOST_ROWS` at most."""
    return min(MOST_ROWS, next_power_of_2(max(N, 1)))


def _run(x, weight, bias, y, N, K, M, OUTS, COLUMNS, **meta):
    rows = rows_of(N)
    grid = (cdiv(M, OUTS), cdiv(N, rows))
    gemv_kernel[grid](
        x, weight, weight if bias is None else bias, y, N, K, M, bias is not None, rows, OUTS, COLUMNS, **meta
    )


@launch(blocks, SWEEP)
def gemv(x, weight, y, N, K, M, OUTS, COLUMNS, **meta):
    """Launch `gemv`: blocks of outputs, the weight read once for all rows."""
    _run(x, weight, None, y, N, K, M, OUTS, COLUMNS, **meta)


@launch(blocks, SWEEP)
def gemv_bias(x, weight, bias, y, N, K, M, OUTS, COLUMNS, **meta):
    """Launch `gemv_bias`: blocks of outputs, the weight read once for all rows."""
    _run(x, weight, bias, y, N, K, M, OUTS, COLUMNS, **meta)
