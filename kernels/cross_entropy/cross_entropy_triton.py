"""Cross entropy in Triton, and the fused classifier. N rows of V logits, padded to Vp.

A target that is neither an index below V nor ignore_index makes its row NaN: a kernel on a GPU cannot raise an error.
"""

import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch
from perfkit.kernels.triton.rows import (
    LOG2_E,
    last_block,
    load_block,
    load_inner,
    logsumexp,
    place_row,
    store_block,
    store_inner,
)

ROW_SWEEP = {"BLOCK": (2048, 4096, 8192), "STAGES": (1, 3), "num_warps": (8, 16)}
FLAT_SWEEP = {"BLOCK": (512, 1024, 2048, 4096), "num_warps": (4, 8)}


@triton.jit
def _counted(target, vocabulary, ignore_index):
    """1.0 for a row that counts, 0.0 for one that is ignored, NaN for a target that is neither."""
    counted = tl.where((target >= 0) & (target < vocabulary), 1.0, float("nan"))
    return tl.where(target == ignore_index, 0.0, counted)


@triton.jit
def cross_entropy_losses_kernel(
    logits, targets, losses, lse, vocabulary, padded, ignore_index,
    WIDE: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Each row's logsumexp and its part of the loss."""
    row = tl.program_id(0)
    origin, lead, end, limit = place_row(row, padded, vocabulary, WIDE)
    value = logsumexp(logits + origin, lead, end, limit, BLOCK, STAGES, "")
    tl.store(lse + row, value)
    target = tl.load(targets + row)
    counted = _counted(target, vocabulary, ignore_index)
    own = tl.load(logits + origin + lead + target, mask=counted == 1.0, other=0.0).to(tl.float32)
    tl.store(losses + row, tl.where(counted == 0.0, 0.0, (value - own) * counted))


@triton.jit
def cross_entropy_mean_kernel(losses, targets, loss, rows, ignore_index, BLOCK: tl.constexpr):
    """The mean of the losses over the rows that count; one program."""
    total = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, rows, BLOCK):
        row = first + tl.arange(0, BLOCK)
        total += tl.load(losses + row, mask=row < rows, other=0.0)
        target = tl.load(targets + row, mask=row < rows, other=ignore_index)
        count += (target != ignore_index).to(tl.int32)
    tl.store(loss, tl.sum(total, 0) / tl.sum(count, 0))


@triton.jit
def cross_entropy_share_kernel(dloss, targets, share, rows, ignore_index, BLOCK: tl.constexpr):
    """dloss / number of rows that count; one program."""
    count = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, rows, BLOCK):
        row = first + tl.arange(0, BLOCK)
        target = tl.load(targets + row, mask=row < rows, other=ignore_index)
        count += (target != ignore_index).to(tl.int32)
    tl.store(share, tl.load(dloss) / tl.sum(count, 0))


@triton.jit
def _row_facts(row, rows, targets, lse, share, vocabulary, ignore_index):
    """Return target, logsumexp and gradient factor of one row."""
    target = tl.load(targets + row, mask=row < rows, other=ignore_index)
    counted = _counted(target, vocabulary, ignore_index)
    factor = tl.where(counted == 0.0, 0.0, counted * tl.load(share))
    return target, tl.load(lse + row, mask=row < rows, other=0.0), factor


@triton.jit
def _slope(value, lse, hit, factor):
    """(exp(value − lse) − [hit])·factor, 0 where the factor is 0 whatever the value."""
    gradient = tl.math.exp2((value - lse) * LOG2_E) * factor - tl.where(hit, factor, 0.0)
    return tl.where(factor == 0.0, 0.0, gradient)


@triton.jit
def cross_entropy_gradient_kernel(
    logits, targets, lse, share, dlogits, rows, vocabulary, padded, ignore_index, elements, BLOCK: tl.constexpr
):  # fmt: skip
    """A block of the flat logits. Since BLOCK ≤ Vp, it covers one row, or parts of two."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    row = first // padded
    column = (first - row * padded).to(tl.int32)
    here = column + tl.arange(0, BLOCK)  # counted on into the next row
    at = first + tl.arange(0, BLOCK)
    value = tl.load(logits + at, mask=at < elements).to(tl.float32)
    target, lse_a, factor_a = _row_facts(row, rows, targets, lse, share, vocabulary, ignore_index)
    if column + BLOCK <= vocabulary:
        tl.store(dlogits + at, _slope(value, lse_a, here == target, factor_a), mask=at < elements)
    else:
        target_b, lse_b, factor_b = _row_facts(row + 1, rows, targets, lse, share, vocabulary, ignore_index)
        second = here >= padded
        own = here - tl.where(second, padded, 0)
        factor = tl.where(second, factor_b, factor_a)
        gradient = _slope(value, tl.where(second, lse_b, lse_a), own == tl.where(second, target_b, target), factor)
        tl.store(dlogits + at, tl.where(own < vocabulary, gradient, 0.0), mask=at < elements)


@triton.jit
def classifier_kernel(
    logits, targets, losses, vocabulary, padded, ignore_index, dloss,
    WIDE: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr, KEEP: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """A row becomes its own gradient; the second reading finds it in the cache."""
    row = tl.program_id(0)
    origin, lead, end, limit = place_row(row, padded, vocabulary, WIDE)
    base = logits + origin
    stop = lead + padded
    target = tl.load(targets + row)
    counted = _counted(target, vocabulary, ignore_index)
    if counted == 0.0:
        tl.store(losses + row, 0.0)
        for first in range(0, stop, BLOCK):
            store_block(base, tl.zeros((BLOCK,), tl.float32), first, lead, stop, BLOCK)
    else:
        lse = logsumexp(base, lead, end, limit, BLOCK, STAGES, KEEP)
        own = tl.load(base + lead + target, mask=counted == 1.0, other=0.0).to(tl.float32)
        tl.store(losses + row, (lse - own) * counted)
        factor = dloss * counted
        place = lead + target
        last = last_block(end, BLOCK)
        tl.debug_barrier()  # every thread has read its part before any part changes
        column = tl.arange(0, BLOCK)
        value = load_block(base, 0, lead, end, limit, float("-inf"), BLOCK)
        store_block(base, _slope(value, lse, column == place, factor), 0, lead, stop, BLOCK)
        for first in tl.range(BLOCK, last, BLOCK, num_stages=STAGES):
            value = load_inner(base, first, BLOCK, DROP)
            store_inner(base, _slope(value, lse, first + column == place, factor), first, BLOCK, DROP)
        if last > 0:
            value = load_block(base, last, lead, end, limit, float("-inf"), BLOCK)
            store_block(base, _slope(value, lse, last + column == place, factor), last, lead, stop, BLOCK)
        for first in range(last + BLOCK, stop, BLOCK):  # padding of more than a block
            store_block(base, tl.zeros((BLOCK,), tl.float32), first, lead, stop, BLOCK)


def forward_blocks(rows, vocabulary, padded, ignore_index, itemsize):
    """A program walks along a row with 8 warps, two blocks ahead of what it adds up; shorter rows need fewer."""
    block = min(4096, max(64, next_power_of_2(vocabulary)))
    return {"BLOCK": block, "STAGES": 3, "num_warps": max(1, block // 512)}


def classifier_blocks(rows, vocabulary, *others, itemsize):
    """More warps a row: fewer rows are under way at once, which the cache must hold until they are read again."""
    block = min(2048, max(64, next_power_of_2(vocabulary)))
    return {"BLOCK": block, "STAGES": 3, "HINTS": 1, "num_warps": max(1, block // 128)}


def flat_blocks(rows, vocabulary, padded, ignore_index, itemsize):
    """32 bytes a thread, but no more than one row."""
    return {"BLOCK": min(4096 // itemsize, fitting(padded)), "num_warps": 4}


def fitting(padded):
    """The greatest power of two up to Vp."""
    return 1 << (max(padded, 1).bit_length() - 1)


@launch(forward_blocks, ROW_SWEEP)
def cross_entropy_forward(logits, targets, loss, lse, rows, vocabulary, padded, ignore_index, BLOCK, STAGES, **meta):
    """Launch `cross_entropy_forward`: logits read once, block by block."""
    losses = lse.new_empty((rows,))
    wide = rows * padded % 16 == 0
    cross_entropy_losses_kernel[(rows,)](
        logits, targets, losses, lse, vocabulary, padded, ignore_index, wide, BLOCK, STAGES, **meta
    )
    cross_entropy_mean_kernel[(1,)](losses, targets, loss, rows, ignore_index, 1024, num_warps=8)


@launch(flat_blocks, FLAT_SWEEP)
def cross_entropy_backward(
    dloss, logits, targets, lse, dlogits, rows, vocabulary, padded, ignore_index, BLOCK, **meta
):  # fmt: skip
    """Launch `cross_entropy_backward`: blocks of the flat logits, each read once."""
    BLOCK = min(BLOCK, fitting(padded))  # a block covers two rows at most
    share = lse.new_empty(())
    elements = rows * padded
    cross_entropy_share_kernel[(1,)](dloss, targets, share, rows, ignore_index, 1024, num_warps=8)
    cross_entropy_gradient_kernel[(cdiv(elements, BLOCK),)](
        logits, targets, lse, share, dlogits, rows, vocabulary, padded, ignore_index, elements, BLOCK, **meta
    )


@launch(classifier_blocks, ROW_SWEEP | {"HINTS": (0, 1)})
def classifier(logits, targets, losses, rows, vocabulary, padded, ignore_index, dloss, BLOCK, STAGES, HINTS, **meta):
    """Launch `classifier`: a row becomes its gradient while it is in the cache."""
    hints = ("evict_last", "evict_first") if HINTS else ("", "")
    wide = rows * padded % 16 == 0
    classifier_kernel[(rows,)](
        logits, targets, losses, vocabulary, padded, ignore_index, dloss, wide, BLOCK, STAGES, *hints, **meta
    )
