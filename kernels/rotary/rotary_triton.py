"""Rotary position embedding in Triton: a program takes one position, whose angles it reads once for all heads.

A block is HEADS × PAIRS, powers of two from the heads of queries, and of keys, and from the pairs of a head on.
"""

import triton
import triton.language as tl
from triton import next_power_of_2

from perfkit.kernels.triton import launch

SWEEP = {"num_warps": (1, 2, 4, 8)}


@triton.jit
def _turn(x, y, n, c, s, heads, pairs, HEADS: tl.constexpr, PAIRS: tl.constexpr):
    head, pair = tl.arange(0, HEADS), tl.arange(0, PAIRS)
    inside = (head < heads)[:, None] & (pair < pairs)[None, :]
    at = n.to(tl.int64) * heads * 2 * pairs + head[:, None] * 2 * pairs + pair[None, :]
    u = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    v = tl.load(x + at + pairs, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + at, u * c - v * s, mask=inside)
    tl.store(y + at + pairs, v * c + u * s, mask=inside)


@triton.jit
def rotary_kernel(
    q, k, cos, sin, out_q, out_k, time, heads, kv_heads, pairs,
    SIGN: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Compute one block of `rotary`."""
    n = tl.program_id(0)
    pair = tl.arange(0, PAIRS)
    angle = n % time * pairs + pair
    c = tl.load(cos + angle, mask=pair < pairs, other=0.0).to(tl.float32)[None, :]
    s = SIGN * tl.load(sin + angle, mask=pair < pairs, other=0.0).to(tl.float32)[None, :]
    _turn(q, out_q, n, c, s, heads, pairs, HEADS, PAIRS)
    _turn(k, out_k, n, c, s, kv_heads, pairs, KV_HEADS, PAIRS)


def blocks(positions, time, heads, kv_heads, pairs, itemsize):
    """About 16 elements of queries a thread."""
    return {"num_warps": max(1, min(8, heads * pairs // 512))}


def turn(sign):
    """The kernel that turns by angles times `sign`."""

    @launch(blocks, SWEEP)
    def run(q, k, cos, sin, out_q, out_k, positions, time, heads, kv_heads, pairs, **meta):
        sizes = next_power_of_2(heads), next_power_of_2(kv_heads), next_power_of_2(pairs)
        rotary_kernel[(positions,)](q, k, cos, sin, out_q, out_k, time, heads, kv_heads, pairs, sign, *sizes, **meta)

    return run


rotary_forward = turn(1)
rotary_backward = turn(-1)
