"""Launches of encoder_sorted.cu: N = B·T tokens, C channels, V words, P positions; bits of `add` name the outputs."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

DIGIT_BITS, THREADS = 8, 256  # of a pass of the sort, a thread a digit
TILE = 2048  # tokens that a block sorts
PIECE = 32  # sorted tokens that a warp sums
WARPS = 4  # of a block that sums
ADD_DWTE, ADD_DWPE = 1, 2


def _sorted(host: Host, idx: Argument, N: int, V: int) -> Argument:
    """The tokens in the order of their words."""
    blocks = ceil(N, TILE)
    counts = host.scratch(blocks << DIGIT_BITS)
    source, target, other = idx, host.scratch(N, 8), host.scratch(N, 8)
    for low in range(0, V.bit_length(), DIGIT_BITS):  # V marks a token that is not a word
        first, shift = str(low == 0).lower(), 32 + low
        host.launch(f"encoder_backward_count_v3<{first}>", blocks, THREADS, source, counts, N, V, shift)
        host.launch(f"encoder_backward_sort_v3<{first}>", blocks, THREADS, source, counts, target, N, V, shift)
        source, target, other = target, other, target
    return source


def _words(
    host: Host, dx: Argument, idx: Argument, dwte: Argument, N: int, C: int, V: int, width: int, add: int
) -> None:
    if not add & ADD_DWTE:
        host.launch(f"encoder_backward_fill_v3<T, {width}>", ceil(V * C, THREADS * width), THREADS, dwte, V * C)
    tokens = _sorted(host, idx, N, V)
    pieces = ceil(N, PIECE)
    parts = host.scratch(pieces * 2 * C)
    grid, sizes = (ceil(pieces, WARPS), ceil(C, 32 * width)), (N, C, V, add & ADD_DWTE)
    host.launch(f"encoder_backward_pieces_v3<T, {width}>", grid, 32 * WARPS, dx, tokens, dwte, parts, *sizes)
    host.launch(f"encoder_backward_words_v3<T, {width}>", grid, 32 * WARPS, parts, tokens, dwte, *sizes)


def encoder_backward_v3(
    host: Host, dx: Argument, idx: Argument, dwte: Argument, dwpe: Argument,
    B: int, T: int, C: int, V: int, P: int, add: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 3: tokens sorted by word, pieces of 32 summed by a warp each: a frequent word is shared by many."""
    width = host.width(C, dx, dwte, dwpe)
    _words(host, dx, idx, dwte, B * T, C, V, width, add)
    kernel = f"encoder_backward_wpe_v3<T, {width}>"
    host.launch(kernel, ceil(P * C, block * width), block, dx, dwpe, B, T, C, P, add & ADD_DWPE)


def embedding_backward_v3(
    host: Host, dx: Argument, idx: Argument, dweight: Argument, N: int, C: int, V: int, add: int
) -> None:
    """Version 3: tokens sorted by word, pieces of 32 summed by a warp each: a frequent word is shared by many."""
    _words(host, dx, idx, dweight, N, C, V, host.width(C, dx, dweight), add)
