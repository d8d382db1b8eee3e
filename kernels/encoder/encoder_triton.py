"""The encoder in Triton. Backward sorts the tokens by word, so that one program sums a word's rows in order.

Legend: B batch, T time, C channels, V words. A token that is no index below V gives a row of NaN, and no gradient.
"""

import torch
import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch

FORWARD_SWEEP = {"ROWS": (1, 2, 4, 8), "num_warps": (2, 4, 8)}
BACKWARD_SWEEP = {"ROWS": (1, 2, 4), "num_warps": (1, 2, 4)}


@triton.jit
def encoder_forward_kernel(
    idx, wte, wpe, x, rows, time, channels, vocabulary, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < channels)[None, :]
    word = tl.load(idx + row, mask=row < rows, other=0)
    known = ((word >= 0) & (word < vocabulary))[:, None]
    position = (row % time)[:, None] * channels + column[None, :]
    value = tl.load(wte + word[:, None] * channels + column[None, :], mask=inside & known, other=float("nan"))
    total = value.to(tl.float32) + tl.load(wpe + position, mask=inside).to(tl.float32)
    tl.store(x + row.to(tl.int64)[:, None] * channels + column[None, :], total, mask=inside)


@triton.jit
def embedding_forward_kernel(idx, weight, x, rows, channels, vocabulary, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < channels)[None, :]
    word = tl.load(idx + row, mask=row < rows, other=0)
    known = ((word >= 0) & (word < vocabulary))[:, None]
    value = tl.load(weight + word[:, None] * channels + column[None, :], mask=inside & known, other=float("nan"))
    tl.store(x + row.to(tl.int64)[:, None] * channels + column[None, :], value, mask=inside)


@triton.jit
def encoder_backward_wte_kernel(dx, order, bounds, dwte, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """One row of dwte: the sum of the rows of dx that `order` lists between two bounds; 0 where there are none."""
    word = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    end = tl.load(bounds + word + 1)
    for first in range(tl.load(bounds + word), end, ROWS):
        place = first + tl.arange(0, ROWS)
        row = tl.load(order + place, mask=place < end, other=0)
        inside = (place < end)[:, None] & (column < channels)[None, :]
        total += tl.load(dx + row[:, None] * channels + column[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(dwte + word.to(tl.int64) * channels + column, tl.sum(total, 0), mask=column < channels)


@triton.jit
def encoder_backward_wpe_kernel(dx, dwpe, batch, time, channels, COLUMNS: tl.constexpr):
    """One row of dwpe: the sum over the batch; 0 from T on."""
    position = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), tl.float32)
    if position < time:
        for b in range(batch):
            row = (b * time + position).to(tl.int64)
            total += tl.load(dx + row * channels + column, mask=column < channels, other=0.0).to(tl.float32)
    tl.store(dwpe + position.to(tl.int64) * channels + column, total, mask=column < channels)


def columns_of(channels):
    return min(1024, next_power_of_2(max(channels, 1)))


def forward_blocks(batch, time, channels, vocabulary, itemsize):
    """About 2048 elements a program."""
    return {"ROWS": max(1, 2048 // columns_of(channels)), "num_warps": 4}


def embedding_blocks(rows, channels, vocabulary, itemsize):
    """As the encoder's."""
    return forward_blocks(rows, 1, channels, vocabulary, itemsize)


def backward_blocks(*sizes, itemsize):
    """Most words have few rows, or none."""
    return {"ROWS": 1, "num_warps": 2}


def sum_words(dx, idx, dwte, channels, vocabulary, ROWS, **meta):
    known = idx.flatten().clamp(-1, vocabulary).to(torch.int32)  # sorted in half the time of int64
    words, order = torch.sort(known, stable=True)
    bounds = torch.searchsorted(words, torch.arange(vocabulary + 1, device=idx.device, dtype=torch.int32))
    columns = columns_of(channels)
    grid = vocabulary, cdiv(channels, columns)
    encoder_backward_wte_kernel[grid](dx, order, bounds, dwte, channels, ROWS, columns, **meta)


@launch(forward_blocks, FORWARD_SWEEP)
def encoder_forward(idx, wte, wpe, x, batch, time, channels, vocabulary, ROWS, **meta):
    columns = columns_of(channels)
    grid = cdiv(batch * time, ROWS), cdiv(channels, columns)
    encoder_forward_kernel[grid](idx, wte, wpe, x, batch * time, time, channels, vocabulary, ROWS, columns, **meta)


@launch(backward_blocks, BACKWARD_SWEEP)
def encoder_backward(dx, idx, dwte, dwpe, batch, time, channels, vocabulary, positions, ROWS, **meta):
    sum_words(dx, idx, dwte, channels, vocabulary, ROWS, **meta)
    columns = columns_of(channels)
    grid = positions, cdiv(channels, columns)
    encoder_backward_wpe_kernel[grid](dx, dwpe, batch, time, channels, columns, **meta)


@launch(embedding_blocks, FORWARD_SWEEP)
def embedding_forward(idx, weight, x, rows, channels, vocabulary, ROWS, **meta):
    columns = columns_of(channels)
    grid = cdiv(rows, ROWS), cdiv(channels, columns)
    embedding_forward_kernel[grid](idx, weight, x, rows, channels, vocabulary, ROWS, columns, **meta)


@launch(backward_blocks, BACKWARD_SWEEP)
def embedding_backward(dx, idx, dweight, rows, channels, vocabulary, ROWS, **meta):
    sum_words(dx, idx, dweight, channels, vocabulary, ROWS, **meta)
