"""Long rows, block by block, with wide loads and stores although a row of odd length starts anywhere.

Blocks are laid from the last multiple of 64 elements before the row on, `origin`; within them the row is [lead, end).
Whole groups of 16 are read, a few elements of the neighbouring rows included, which are then replaced. A tensor whose
number of elements is not a multiple of 16 must not be read to the end of a group: WIDE is false there.
The first block is masked (a row begins in it), and so is the last; those between are wholly of the row.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def place_row(row, stride, length, WIDE: tl.constexpr):
    """Return origin, lead, end and read limit of row `row`, which has `length` elements every `stride`."""
    start = row.to(tl.int64) * stride
    origin = (start // 64) * 64
    lead = (start - origin).to(tl.int32)
    end = lead + length
    limit = end
    if WIDE:
        limit = ((end + 15) // 16) * 16
    return origin, lead, end, limit


@triton.jit
def last_block(end, BLOCK: tl.constexpr):
    """Return the start of the last block: 0, that of the first, in a row of one block."""
    return ((end - 1) // BLOCK) * BLOCK


@triton.jit
def load_block(row, first, lead, end, limit, fill, BLOCK: tl.constexpr):
    """The block from `first` on as fp32, `fill` where it is not of the row. `row` points to the row's origin."""
    at = first + tl.arange(0, BLOCK)
    value = tl.load(row + at, mask=at < limit).to(tl.float32)
    return tl.where((at >= lead) & (at < end), value, fill)


@triton.jit
def load_inner(row, first, BLOCK: tl.constexpr, EVICT: tl.constexpr):
    """A block that is wholly of the row, as fp32. EVICT is asked of the cache: "evict_last", "evict_first" or ""."""
    return tl.load(row + first + tl.arange(0, BLOCK), eviction_policy=EVICT).to(tl.float32)


@triton.jit
def store_block(row, value, first, lead, end, BLOCK: tl.constexpr):
    """Store what belongs to the row."""
    at = first + tl.arange(0, BLOCK)
    tl.store(row + at, value, mask=(at >= lead) & (at < end))


@triton.jit
def store_inner(row, value, first, BLOCK: tl.constexpr, EVICT: tl.constexpr):
    """Store a block that is wholly of the row; EVICT as in `load_inner`."""
    tl.store(row + first + tl.arange(0, BLOCK), value, eviction_policy=EVICT)


@triton.jit
def _add_powers(value, top, total):
    """Add Σ exp of a block to `total`, which is relative to `top`; a greater maximum rescales it."""
    higher = tl.maximum(top, tl.max(value, 0) * LOG2_E)
    shift = tl.where(higher == float("-inf"), 0.0, higher)
    return higher, total * tl.math.exp2(top - shift) + tl.math.exp2(value * LOG2_E - shift)


@triton.jit
def logsumexp(row, lead, end, limit, BLOCK: tl.constexpr, STAGES: tl.constexpr, EVICT: tl.constexpr):
    """log Σ exp over a row that is read once; EVICT as in `load_inner`."""
    last = last_block(end, BLOCK)
    value = load_block(row, 0, lead, end, limit, float("-inf"), BLOCK)
    top, total = _add_powers(value, float("-inf"), tl.zeros((BLOCK,), tl.float32))
    for first in tl.range(BLOCK, last, BLOCK, num_stages=STAGES):
        top, total = _add_powers(load_inner(row, first, BLOCK, EVICT), top, total)
    if last > 0:
        value = load_block(row, last, lead, end, limit, float("-inf"), BLOCK)
        top, total = _add_powers(value, top, total)
    return (tl.where(top == float("-inf"), 0.0, top) + tl.math.log2(tl.sum(total, 0))) * LN_2
