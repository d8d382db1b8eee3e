"""Tensors in fp8 with one scale each, in Triton: x is (N, M), x8 the same, x8t its transpose."""

import torch
import triton
import triton.language as tl
from triton import cdiv

from perfkit.kernels.triton import launch
from perfkit.kernels.triton.fp8 import converts, magnitude, raise_amax, scale_of, to_fp8

E4M3 = {"MANTISSA": 3, "BIAS": 7, "MOST": 448.0}
E5M2 = {"MANTISSA": 2, "BIAS": 15, "MOST": 57344.0}
AMAX_SWEEP = {"BLOCK": (4096, 8192, 16384), "num_warps": (4, 8)}
CAST_SWEEP = {"ROWS": (32, 64, 128), "COLUMNS": (64, 128), "num_warps": (4, 8)}


@triton.jit
def fp8_amax_kernel(x, amax, n, BLOCK: tl.constexpr):
    """Compute one block of `fp8_amax`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    raise_amax(amax, tl.max(magnitude(value), 0))


@triton.jit
def fp8_cast_kernel(
    x, amax, x8, x8t, scale, rows, columns,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    MANTISSA: tl.constexpr, BIAS: tl.constexpr, MOST: tl.constexpr, CONVERTS: tl.constexpr,
):  # fmt: skip
    """Cast one tile and write it both ways."""
    divisor = scale_of(tl.load(amax), MOST)
    across = tl.cdiv(columns, COLUMNS)
    row = (tl.program_id(0) // across) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % across) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    found = to_fp8(value * tl.div_rn(1.0, divisor), MANTISSA, BIAS, MOST, CONVERTS)
    tl.store(x8 + at, found, mask=inside)
    turned = column.to(tl.int64)[:, None] * rows + row[None, :]
    tl.store(x8t + turned, tl.trans(found), mask=(column < columns)[:, None] & (row < rows)[None, :])
    if tl.program_id(0) == 0:
        tl.store(scale, divisor)


def blocks(n, itemsize):
    """A thread takes 64 bytes: four loads in flight."""
    return {"BLOCK": 256 * 64 // itemsize, "num_warps": 8}


def tiles(rows, columns, itemsize):
    """64 bytes side by side in all tensors."""
    return {"ROWS": 64, "COLUMNS": 128, "num_warps": 8}


@launch(blocks, AMAX_SWEEP)
def fp8_amax(x, amax, n, BLOCK, **meta):
    """Launch `fp8_amax`: one pass, one comparison in memory a block."""
    fp8_amax_kernel[(cdiv(n, BLOCK),)](x, amax, n, BLOCK, **meta)


@launch(tiles, CAST_SWEEP)
def fp8_cast(x, amax, x8, x8t, scale, rows, columns, **meta):
    """Launch `fp8_cast`: tiles, transposed on the chip."""
    _cast(x, amax, x8, x8t, scale, rows, columns, **E4M3, **meta)


@launch(tiles, CAST_SWEEP)
def fp8_gradient_cast(dy, amax, dy8, dy8t, scale, rows, columns, **meta):
    """Launch `fp8_gradient_cast`: tiles, transposed on the chip."""
    _cast(dy, amax, dy8, dy8t, scale, rows, columns, **E5M2, **meta)


def _cast(x, amax, x8, x8t, scale, rows, columns, ROWS, COLUMNS, **meta):
    grid = (cdiv(rows, ROWS) * cdiv(columns, COLUMNS),)
    as_bytes = x8.view(torch.uint8), x8t.view(torch.uint8)
    fp8_cast_kernel[grid](x, amax, *as_bytes, scale, rows, columns, ROWS, COLUMNS, CONVERTS=converts(), **meta)
