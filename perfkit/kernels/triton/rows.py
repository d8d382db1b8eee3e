"""Long rows, block by block, with wide loads and stores although a row of odd length starts anywhere.

Blocks are laid from the last multiple of 16 elements before the row on, `origin`; within them the row is [lead, end).
Whole groups of 16 are read, a few elements of the neighbouring rows included, which are then replaced. A tensor whose
number of elements is no multiple of 16 must not be read to the end of a group: WIDE is false there.
"""

import triton
import triton.language as tl


@triton.jit
def place_row(row, stride, length, WIDE: tl.constexpr):
    """Of row `row`, `length` elements every `stride`: its origin, lead and end, and the limit of what may be read."""
    start = row.to(tl.int64) * stride
    origin = (start // 16) * 16
    lead = (start - origin).to(tl.int32)
    end = lead + length
    limit = end
    if WIDE:
        limit = ((end + 15) // 16) * 16
    return origin, lead, end, limit


@triton.jit
def load_block(row, first, lead, end, limit, fill, BLOCK: tl.constexpr):
    """The block from `first` on as fp32, `fill` where it is not of the row. `row` points to the row's origin."""
    at = first + tl.arange(0, BLOCK)
    value = tl.load(row + at, mask=at < limit).to(tl.float32)
    return tl.where((at >= lead) & (at < end), value, fill)


@triton.jit
def store_block(row, value, first, lead, end, BLOCK: tl.constexpr):
    """Store what belongs to the row; blocks wholly inside it without a mask."""
    at = first + tl.arange(0, BLOCK)
    if (first >= 16) & (first + BLOCK <= end):
        tl.store(row + at, value)
    else:
        tl.store(row + at, value, mask=(at >= lead) & (at < end))


@triton.jit
def logsumexp(row, lead, end, limit, BLOCK: tl.constexpr):
    """log Σ exp over a row that is read once: the sum is rescaled whenever a block has a greater maximum."""
    top = float("-inf")
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, end, BLOCK):
        value = load_block(row, first, lead, end, limit, float("-inf"), BLOCK)
        higher = tl.maximum(top, tl.max(value, 0))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - shift) + tl.exp(value - shift)
        top = higher
    return tl.where(top == float("-inf"), 0.0, top) + tl.log(tl.sum(total, 0))
