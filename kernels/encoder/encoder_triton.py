"""The encoder's forward in Triton. A token that is not an index below V, the number of words, gives a row of NaN."""

import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch

FORWARD_SWEEP = {"ROWS": (1, 2, 4, 8), "num_warps": (2, 4, 8)}


@triton.jit
def encoder_forward_kernel(
    idx, wte, wpe, x, rows, time, channels, vocabulary, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """x of ROWS tokens and COLUMNS channels; NaN where a token is not a word."""
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
    """x of ROWS tokens and COLUMNS channels; NaN where a token is not a word."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < channels)[None, :]
    word = tl.load(idx + row, mask=row < rows, other=0)
    known = ((word >= 0) & (word < vocabulary))[:, None]
    value = tl.load(weight + word[:, None] * channels + column[None, :], mask=inside & known, other=float("nan"))
    tl.store(x + row.to(tl.int64)[:, None] * channels + column[None, :], value, mask=inside)


def columns_of(channels):
    """Channels of a program: a power of two, 1024 at most."""
    return min(1024, next_power_of_2(max(channels, 1)))


def forward_blocks(batch, time, channels, vocabulary, itemsize):
    """About 2048 elements a program."""
    return {"ROWS": max(1, 2048 // columns_of(channels)), "num_warps": 4}


def embedding_blocks(rows, channels, vocabulary, itemsize):
    """As the encoder's."""
    return forward_blocks(rows, 1, channels, vocabulary, itemsize)


@launch(forward_blocks, FORWARD_SWEEP)
def encoder_forward(idx, wte, wpe, x, batch, time, channels, vocabulary, ROWS, **meta):
    """Launch `encoder_forward`: whole rows."""
    columns = columns_of(channels)
    grid = cdiv(batch * time, ROWS), cdiv(channels, columns)
    encoder_forward_kernel[grid](idx, wte, wpe, x, batch * time, time, channels, vocabulary, ROWS, columns, **meta)


@launch(embedding_blocks, FORWARD_SWEEP)
def embedding_forward(idx, weight, x, rows, channels, vocabulary, ROWS, **meta):
    """Launch `embedding_forward`: whole rows."""
    columns = columns_of(channels)
    grid = cdiv(rows, ROWS), cdiv(channels, columns)
    embedding_forward_kernel[grid](idx, weight, x, rows, channels, vocabulary, ROWS, columns, **meta)
