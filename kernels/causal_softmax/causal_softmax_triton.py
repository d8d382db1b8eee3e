"""Causal softmax in Triton: a program holds whole rows; of a row only what is not in the future is read.

Legend: a row is one query's S scores (`keys`), the queries are the last T (`time`) of S tokens, `matrices` = B·NH.
A block is ROWS × COLUMNS, COLUMNS the power of two from S on.
"""

import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch

SWEEP = {"ROWS": (1, 2, 4, 8), "num_warps": (2, 4, 8)}


@triton.jit
def _block(matrices, time, keys, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the offsets of one block, and masks: which elements are inside, which are to be read, which are past.

    Whole groups of 16 are read, some elements beyond the diagonal included, so that loads are wide.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    query = (keys - time + row % time)[:, None]
    key = tl.arange(0, COLUMNS)[None, :]
    inside = (row < matrices * time)[:, None] & (key < keys)
    wanted = inside & (key < (query // 16 + 1) * 16)
    return row.to(tl.int64)[:, None] * keys + key, inside, wanted, inside & (key <= query)


@triton.jit
def causal_softmax_forward_kernel(scores, att, matrices, time, keys, scale, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Compute one block of `causal_softmax_forward`."""
    at, inside, wanted, past = _block(matrices, time, keys, ROWS, COLUMNS)
    value = tl.load(scores + at, mask=wanted).to(tl.float32) * (scale * 1.4426950408889634)
    value = tl.where(past, value, float("-inf"))
    power = tl.where(past, tl.math.exp2(value - tl.max(value, 1)[:, None]), 0.0)
    tl.store(att + at, power * (1.0 / tl.sum(power, 1))[:, None], mask=inside)


@triton.jit
def causal_softmax_backward_kernel(
    datt, att, dscores, matrices, time, keys, scale, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Compute one block of `causal_softmax_backward`."""
    at, inside, wanted, past = _block(matrices, time, keys, ROWS, COLUMNS)
    upstream = tl.where(past, tl.load(datt + at, mask=wanted).to(tl.float32), 0.0)
    weight = tl.where(past, tl.load(att + at, mask=wanted).to(tl.float32), 0.0)
    mean = tl.sum(upstream * weight, 1)[:, None]
    tl.store(dscores + at, scale * weight * (upstream - mean), mask=inside)


def blocks(matrices, time, keys, scale, itemsize):
    """At least 1024 elements a program, and 16 a thread."""
    columns = next_power_of_2(max(keys, 1))
    rows = max(1, 1024 // columns)
    return {"ROWS": rows, "num_warps": max(1, min(32, rows * columns // 512))}


@launch(blocks, SWEEP)
def causal_softmax_forward(scores, att, matrices, time, keys, scale, ROWS, **meta):
    """Launch `causal_softmax_forward`: rows in registers; only the past is read."""
    shape = (cdiv(matrices * time, ROWS),)
    causal_softmax_forward_kernel[shape](
        scores, att, matrices, time, keys, scale, ROWS, next_power_of_2(max(keys, 1)), **meta
    )


@launch(blocks, SWEEP)
def causal_softmax_backward(datt, att, dscores, matrices, time, keys, scale, ROWS, **meta):
    """Launch `causal_softmax_backward`: rows in registers; only the past is read."""
    shape = (cdiv(matrices * time, ROWS),)
    causal_softmax_backward_kernel[shape](
        datt, att, dscores, matrices, time, keys, scale, ROWS, next_power_of_2(max(keys, 1)), **meta
    )
