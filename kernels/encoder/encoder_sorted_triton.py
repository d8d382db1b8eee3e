"""The encoder's backward over sorted tokens in pieces, in Triton, as encoder_sorted.cu does it.

Legend: B batch, T time, C channels, V words. A token that is not an index below V is ignored.
"""

import torch
import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from perfkit.kernels.triton import launch

SWEEP = {"PIECE": (16, 32, 64), "num_warps": (1, 2, 4)}
ADD_DWTE, ADD_DWPE = 1, 2


@triton.jit
def put_sum(out, value, mask, ADD: tl.constexpr):
    """out (+)= value."""
    if ADD:
        value += tl.load(out, mask=mask).to(tl.float32)
    tl.store(out, value, mask=mask)


@triton.jit
def encoder_backward_pieces_kernel(
    dx, words, order, dwte, parts, tokens, channels, vocabulary,
    PIECE: tl.constexpr, COLUMNS: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """The words of a piece. parts (pieces, 2, C): of one that began before, and of one that begins here and goes on."""
    piece = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = column < channels
    start = piece * PIECE
    end = tl.minimum(start + PIECE, tokens)
    began = False
    if start > 0:
        began = tl.load(words + start - 1) == tl.load(words + start)
    total = tl.zeros((COLUMNS,), tl.float32)
    for i in range(start, end):
        word = tl.load(words + i).to(tl.int64)
        known = (word >= 0) & (word < vocabulary)
        row = tl.load(order + i)
        total += tl.load(dx + row * channels + column, mask=mask & known, other=0.0).to(tl.float32)
        following = tl.load(words + i + 1, mask=i + 1 < tokens, other=-2).to(tl.int64)
        if (following != word) | (i + 1 == end):
            goes_on = following == word
            part = parts + (piece.to(tl.int64) * 2 + tl.where(began, 0, 1)) * channels + column
            apart = began | goes_on
            tl.store(part, total, mask=mask & apart)
            put_sum(dwte + word * channels + column, total, mask & known & (apart == 0), ADD)
            began = False
            total = tl.zeros((COLUMNS,), tl.float32)


@triton.jit
def encoder_backward_words_kernel(
    parts, words, ends, dwte, channels, vocabulary, PIECE: tl.constexpr, COLUMNS: tl.constexpr, ADD: tl.constexpr
):
    """The word that begins in a piece and goes on in those after it: `ends` says where a piece's last word ends."""
    piece = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = column < channels
    start = piece * PIECE
    after = start + PIECE
    word = tl.load(words + after - 1).to(tl.int64)
    end = tl.load(ends + piece)
    began = tl.load(words + start - 1, mask=start > 0, other=-2).to(tl.int64) == word
    if (end > after) & (began == 0) & (word >= 0) & (word < vocabulary):
        total = tl.load(parts + (piece * 2 + 1) * channels + column, mask=mask)
        for following in range(piece + 1, tl.cdiv(end, PIECE)):
            total += tl.load(parts + following * 2 * channels + column, mask=mask)
        put_sum(dwte + word * channels + column, total, mask, ADD)


@triton.jit
def encoder_backward_wpe_kernel(dx, dwpe, batch, time, channels, COLUMNS: tl.constexpr, ADD: tl.constexpr):
    """One row of dwpe: the sum over the batch; nothing from T on."""
    position = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), tl.float32)
    if position < time:
        for b in range(batch):
            row = (b * time + position).to(tl.int64)
            total += tl.load(dx + row * channels + column, mask=column < channels, other=0.0).to(tl.float32)
    put_sum(dwpe + position.to(tl.int64) * channels + column, total, column < channels, ADD)


def columns_of(channels):
    """Channels of a program: a power of two, 1024 at most."""
    return min(1024, next_power_of_2(max(channels, 1)))


def blocks(*sizes, itemsize):
    """Sum pieces of 32 rows."""
    return {"PIECE": 32, "num_warps": 2}


def sum_words(dx, idx, dwte, channels, vocabulary, add, PIECE, **meta):
    """Sort the tokens by word, then add each word's rows of dx to its row of dwte."""
    known = idx.flatten().clamp(-1, vocabulary).to(torch.int32)  # sorted in half the time of int64
    words, order = torch.sort(known, stable=True)
    if not add & ADD_DWTE:
        dwte.zero_()
    tokens, columns = len(words), columns_of(channels)
    pieces = cdiv(tokens, PIECE)
    parts = dx.new_empty((pieces, 2, channels), dtype=torch.float32)
    across, sizes = cdiv(channels, columns), (channels, vocabulary, PIECE, columns, add & ADD_DWTE)
    if pieces:
        encoder_backward_pieces_kernel[(pieces, across)](dx, words, order, dwte, parts, tokens, *sizes, **meta)
    if tokens >= PIECE:
        ends = torch.searchsorted(words, words[PIECE - 1 :: PIECE].contiguous(), right=True)
        encoder_backward_words_kernel[(len(ends), across)](parts, words, ends, dwte, *sizes, **meta)


@launch(blocks, SWEEP)
def encoder_backward(dx, idx, dwte, dwpe, batch, time, channels, vocabulary, positions, add, PIECE, **meta):
    """Launch `encoder_backward`: tokens sorted by word, pieces of 32 summed by a warp each: a frequent word is shared
    by many."""
    sum_words(dx, idx, dwte, channels, vocabulary, add, PIECE, **meta)
    columns = columns_of(channels)
    grid = positions, cdiv(channels, columns)
    encoder_backward_wpe_kernel[grid](dx, dwpe, batch, time, channels, columns, add & ADD_DWPE, **meta)


@launch(blocks, SWEEP)
def embedding_backward(dx, idx, dweight, rows, channels, vocabulary, add, PIECE, **meta):
    """Launch `embedding_backward`: tokens sorted by word, pieces of 32 summed by a warp each: a frequent word is shared
    by many."""
    sum_words(dx, idx, dweight, channels, vocabulary, add, PIECE, **meta)
