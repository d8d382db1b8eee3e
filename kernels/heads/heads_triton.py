"""Splitting into heads and merging in Triton: copies of blocks of TOKENS × HS, whose rows are contiguous on both sides.

Legend: B batch, T time, NH heads, HS head size, C = NH·HS; SIZE is the power of two from HS on.
"""

import torch
import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch
from perfkit.kernels.triton.parts import parts_of_rows, sum_parts

SUM_SWEEP = {"TOKENS": (16, 32, 64), "PER_PROCESSOR": (4, 8), "num_warps": (4, 8)}
SWEEP = {"TOKENS": (16, 32, 64, 128), "num_warps": (4, 8)}


@triton.jit
def _places(time, heads, size, PARTS: tl.constexpr, TOKENS: tl.constexpr, SIZE: tl.constexpr):
    """Return the offsets of one block in (B, T, PARTS·C) and in (B, NH, T, HS), and its mask."""
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    pair = tl.program_id(0).to(tl.int64)  # batch·NH + head
    batch, head = pair // heads, pair % heads
    i = tl.arange(0, SIZE)
    in_tokens = (batch * time + token)[:, None] * (PARTS * heads * size) + (head * size + i)[None, :]
    in_heads = (pair * time + token)[:, None] * size + i[None, :]
    return in_tokens, in_heads, (token < time)[:, None] & (i < size)[None, :]


@triton.jit
def split_heads_forward_kernel(qkv, q, k, v, time, heads, size, TOKENS: tl.constexpr, SIZE: tl.constexpr):
    """Compute one block of `split_heads_forward`."""
    in_tokens, in_heads, inside = _places(time, heads, size, 3, TOKENS, SIZE)
    channels = heads * size
    q_block = tl.load(qkv + in_tokens, mask=inside)
    k_block = tl.load(qkv + channels + in_tokens, mask=inside)
    v_block = tl.load(qkv + 2 * channels + in_tokens, mask=inside)
    tl.store(q + in_heads, q_block, mask=inside)
    tl.store(k + in_heads, k_block, mask=inside)
    tl.store(v + in_heads, v_block, mask=inside)


@triton.jit
def split_heads_backward_kernel(dq, dk, dv, dqkv, time, heads, size, TOKENS: tl.constexpr, SIZE: tl.constexpr):
    """Compute one block of `split_heads_backward`."""
    in_tokens, in_heads, inside = _places(time, heads, size, 3, TOKENS, SIZE)
    channels = heads * size
    q_block = tl.load(dq + in_heads, mask=inside)
    k_block = tl.load(dk + in_heads, mask=inside)
    v_block = tl.load(dv + in_heads, mask=inside)
    tl.store(dqkv + in_tokens, q_block, mask=inside)
    tl.store(dqkv + channels + in_tokens, k_block, mask=inside)
    tl.store(dqkv + 2 * channels + in_tokens, v_block, mask=inside)


@triton.jit
def merge_heads_forward_kernel(x, y, time, heads, size, TOKENS: tl.constexpr, SIZE: tl.constexpr):
    """Compute one block of `merge_heads_forward`."""
    in_tokens, in_heads, inside = _places(time, heads, size, 1, TOKENS, SIZE)
    tl.store(y + in_tokens, tl.load(x + in_heads, mask=inside), mask=inside)


@triton.jit
def merge_heads_backward_kernel(dy, dx, time, heads, size, TOKENS: tl.constexpr, SIZE: tl.constexpr):
    """Compute one block of `merge_heads_backward`."""
    in_tokens, in_heads, inside = _places(time, heads, size, 1, TOKENS, SIZE)
    tl.store(dx + in_heads, tl.load(dy + in_tokens, mask=inside), mask=inside)


@triton.jit
def split_heads_bias_backward_kernel(
    dq, dk, dv, dqkv, parts, rows, time, heads, size, TOKENS: tl.constexpr, SIZE: tl.constexpr
):
    """One head of q, k or v in every PARTS-th block of tokens, and its sums into parts (PARTS, 3·C)."""
    which, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    i = tl.arange(0, SIZE)
    column = tl.program_id(0) * size + i
    total = tl.zeros((TOKENS, SIZE), tl.float32)
    for first in range(tl.program_id(1) * TOKENS, rows, tl.num_programs(1) * TOKENS):
        row = (first + tl.arange(0, TOKENS)).to(tl.int64)
        inside = (row < rows)[:, None] & (i < size)[None, :]
        in_heads = ((row // time * heads + head) * time + row % time)[:, None] * size + i[None, :]
        if which == 0:
            block = tl.load(dq + in_heads, mask=inside, other=0.0)
        elif which == 1:
            block = tl.load(dk + in_heads, mask=inside, other=0.0)
        else:
            block = tl.load(dv + in_heads, mask=inside, other=0.0)
        tl.store(dqkv + row[:, None] * (3 * heads * size) + column[None, :], block, mask=inside)
        total += block.to(tl.float32)
    tl.store(parts + tl.program_id(1) * (3 * heads * size) + column, tl.sum(total, 0), mask=i < size)


def blocks(batch, time, heads, size, itemsize):
    """About 8 KiB of each tensor a program."""
    tokens = 8192 // itemsize // next_power_of_2(max(size, 1))
    return {"TOKENS": max(1, min(128, tokens, next_power_of_2(max(time, 1)))), "num_warps": 4}


def grid(batch, time, heads, tokens):
    """A program for each head of a sample and `tokens` tokens."""
    return batch * heads, cdiv(time, tokens)


@launch(blocks, SWEEP)
def split_heads_forward(qkv, q, k, v, batch, time, heads, size, TOKENS, **meta):
    """Launch `split_heads_forward`: blocks of whole head rows."""
    shape = grid(batch, time, heads, TOKENS)
    split_heads_forward_kernel[shape](qkv, q, k, v, time, heads, size, TOKENS, next_power_of_2(size), **meta)


@launch(blocks, SWEEP)
def split_heads_backward(dq, dk, dv, dqkv, batch, time, heads, size, TOKENS, **meta):
    """Launch `split_heads_backward`: blocks of whole head rows."""
    shape = grid(batch, time, heads, TOKENS)
    split_heads_backward_kernel[shape](dq, dk, dv, dqkv, time, heads, size, TOKENS, next_power_of_2(size), **meta)


@launch(blocks, SWEEP)
def merge_heads_forward(x, y, batch, time, heads, size, TOKENS, **meta):
    """Launch `merge_heads_forward`: blocks of whole head rows."""
    shape = grid(batch, time, heads, TOKENS)
    merge_heads_forward_kernel[shape](x, y, time, heads, size, TOKENS, next_power_of_2(size), **meta)


@launch(blocks, SWEEP)
def merge_heads_backward(dy, dx, batch, time, heads, size, TOKENS, **meta):
    """Launch `merge_heads_backward`: blocks of whole head rows."""
    shape = grid(batch, time, heads, TOKENS)
    merge_heads_backward_kernel[shape](dy, dx, time, heads, size, TOKENS, next_power_of_2(size), **meta)


def sum_blocks(batch, time, heads, size, itemsize):
    """About 4 KiB of each tensor a program at once."""
    tokens = 4096 // itemsize // next_power_of_2(max(size, 1))
    return {"TOKENS": max(1, min(64, tokens)), "PER_PROCESSOR": 8, "num_warps": 4}


@launch(sum_blocks, SUM_SWEEP)
def split_heads_bias_backward(dq, dk, dv, dqkv, db, batch, time, heads, size, TOKENS, PER_PROCESSOR, **meta):
    """Launch `split_heads_bias_backward`: a head at a time; sums by parts of the tokens, in a fixed order."""
    rows = batch * time
    count = parts_of_rows(dq, rows, TOKENS, 3 * heads, PER_PROCESSOR)
    parts = dq.new_empty((count, 3 * heads * size), dtype=torch.float32)
    split_heads_bias_backward_kernel[(3 * heads, count)](
        dq, dk, dv, dqkv, parts, rows, time, heads, size, TOKENS, next_power_of_2(max(size, 1)), **meta
    )
    sum_parts(parts, db)
