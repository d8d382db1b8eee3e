"""Sums over the rows of a matrix, by parts of the rows: how many fill the GPU, and their sum in a fixed order."""

import triton
import triton.language as tl
from triton import cdiv

from perfkit.kernels.triton.device import multiprocessors


@triton.jit
def sum_parts_kernel(parts, out, count, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """out[c] = Σ over p of parts[p, c], for COLUMNS columns."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, count, ROWS):
        part = first + tl.arange(0, ROWS)
        inside = (part < count)[:, None] & (column < columns)[None, :]
        total += tl.load(parts + part.to(tl.int64)[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(out + column, tl.sum(total, 0), mask=column < columns)


def parts_of_rows(like, rows, per_part, across, per_processor):
    """Return the number of parts of `rows` rows, of at least `per_part` each and `across` programs, that fill the
    GPU."""
    return max(1, min(cdiv(rows, per_part), cdiv(per_processor * multiprocessors(like), max(across, 1))))


def sum_parts(parts, out):
    """out (M) = the sum of parts (P, M) in fp32."""
    count, columns = parts.shape
    sum_parts_kernel[(cdiv(columns, 32),)](parts, out, count, columns, 32, 32, num_warps=4)
