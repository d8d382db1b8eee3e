"""The residual sum in Triton, alone and fused with the LayerNorm that follows: x is written and not read again."""

import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch

FLAT_SWEEP = {"BLOCK": (512, 1024, 2048, 4096), "num_warps": (4, 8)}
ROW_SWEEP = {"ROWS": (1, 2, 4, 8), "num_warps": (2, 4, 8)}


@triton.jit
def residual_forward_kernel(a, b, y, n, BLOCK: tl.constexpr):
    """Compute one block of `residual_forward`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(a + at, mask=at < n).to(tl.float32) + tl.load(b + at, mask=at < n).to(tl.float32)
    tl.store(y + at, total, mask=at < n)


@triton.jit
def residual_layernorm_forward_kernel(
    a, b, weight, bias, x, y, mean, rstd, rows, channels, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """x, y and statistics of ROWS whole rows: the norm is that of the sum before it is rounded."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    is_row, is_column = row < rows, column < channels
    inside = is_row[:, None] & is_column[None, :]
    at = row.to(tl.int64)[:, None] * channels + column[None, :]
    total = tl.load(a + at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(b + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(x + at, total, mask=inside)
    middle = tl.sum(total, 1) / channels
    centred = tl.where(inside, total - middle[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / channels + eps)
    w = tl.load(weight + column, mask=is_column).to(tl.float32)
    shift = tl.load(bias + column, mask=is_column).to(tl.float32)
    tl.store(y + at, centred * scale[:, None] * w[None, :] + shift[None, :], mask=inside)
    tl.store(mean + row, middle, mask=is_row)
    tl.store(rstd + row, scale, mask=is_row)


def flat_blocks(n, itemsize):
    """A thread takes 32 bytes of each tensor: two loads in flight."""
    return {"BLOCK": 4096 // itemsize, "num_warps": 4}


def row_blocks(rows, channels, eps, itemsize):
    """About 4096 elements a program; a warp for each 512 columns."""
    columns = next_power_of_2(max(channels, 1))
    return {"ROWS": max(1, min(8, 4096 // columns)), "num_warps": max(4, min(16, columns // 512))}


@launch(flat_blocks, FLAT_SWEEP)
def residual_forward(a, b, y, n, BLOCK, **meta):
    """Launch `residual_forward`: one pass."""
    residual_forward_kernel[(cdiv(n, BLOCK),)](a, b, y, n, BLOCK, **meta)


@launch(row_blocks, ROW_SWEEP)
def residual_layernorm_forward(a, b, weight, bias, x, y, mean, rstd, rows, channels, eps, ROWS, **meta):
    """Launch `residual_layernorm_forward`: whole rows in registers: x is written and not read again."""
    columns = next_power_of_2(max(channels, 1))
    residual_layernorm_forward_kernel[(cdiv(rows, ROWS),)](
        a, b, weight, bias, x, y, mean, rstd, rows, channels, eps, ROWS, columns, **meta
    )
