"""The sum of squares in Triton: each program sums every PROGRAMS-th block, one program then sums the parts in order."""

import triton
import triton.language as tl
from triton import cdiv

from perfkit.kernels.triton import launch, multiprocessors

SWEEP = {"BLOCK": (1024, 2048, 4096), "PER_PROCESSOR": (2, 4, 8), "num_warps": (4, 8)}


@triton.jit
def global_norm_parts_kernel(x, partial, n, BLOCK: tl.constexpr):
    """The sum of squares of every PROGRAMS-th block."""
    total = tl.zeros((BLOCK,), tl.float32)
    start = tl.program_id(0).to(tl.int64) * BLOCK
    for first in range(start, n, tl.num_programs(0).to(tl.int64) * BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
        total += value * value
    tl.store(partial + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def global_norm_sum_kernel(partial, result, parts, BLOCK: tl.constexpr):
    """The sum of all parts, by one program."""
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, parts, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(partial + at, mask=at < parts, other=0.0)
    tl.store(result, tl.sum(total, 0))


def blocks(n, itemsize):
    """64 bytes a thread in flight, and enough programs to fill the multiprocessors."""
    return {"BLOCK": 16384 // itemsize, "PER_PROCESSOR": 4, "num_warps": 8}


@launch(blocks, SWEEP)
def global_norm(x, squares, n, BLOCK, PER_PROCESSOR, **meta):
    """Launch `global_norm`: sums of parts, in a fixed order."""
    programs = max(1, min(cdiv(n, BLOCK), PER_PROCESSOR * multiprocessors(x)))
    partial = squares.new_empty((programs,))
    global_norm_parts_kernel[(programs,)](x, partial, n, BLOCK, **meta)
    global_norm_sum_kernel[(1,)](partial, squares, programs, 1024, num_warps=4)
