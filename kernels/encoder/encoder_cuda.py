"""Launches of encoder.cu: B rows of T tokens, N = B·T, C channels, V words, P positions."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

ROOM = 8192  # tokens that a block can note: more of 32 neighbouring words are seldom in a batch
WORDS = 32  # rows of dwte that one block owns; their numbers take the bits above a token's 24


def encoder_forward_v1(
    host: Host, idx: Argument, wte: Argument, wpe: Argument, x: Argument,
    B: int, T: int, C: int, V: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 1: one element a thread."""
    n = B * T * C
    host.launch("encoder_forward_v1<T>", ceil(n, block), block, idx, wte, wpe, x, n, T, C, V)


def encoder_forward_v2(
    host: Host, idx: Argument, wte: Argument, wpe: Argument, x: Argument,
    B: int, T: int, C: int, V: int, *, block: int = 128,
) -> None:  # fmt: skip
    """Version 2: one warp a token, 16-byte accesses."""
    width = host.width(C, wte, wpe, x)
    packs = max(1, min(4, ceil(C, 32 * width)))
    kernel = f"encoder_forward_v2<T, {width}, {packs}>"
    host.launch(kernel, ceil(B * T, block // 32), block, idx, wte, wpe, x, B * T, T, C, V)


def embedding_forward_v1(
    host: Host, idx: Argument, weight: Argument, x: Argument, N: int, C: int, V: int, *, block: int = 256
) -> None:
    """Version 1: one element a thread."""
    host.launch("embedding_forward_v1<T>", ceil(N * C, block), block, idx, weight, x, N * C, C, V)


def embedding_forward_v2(
    host: Host, idx: Argument, weight: Argument, x: Argument, N: int, C: int, V: int, *, block: int = 128
) -> None:
    """Version 2: one warp a token, 16-byte accesses."""
    width = host.width(C, weight, x)
    packs = max(1, min(4, ceil(C, 32 * width)))
    kernel = f"embedding_forward_v2<T, {width}, {packs}>"
    host.launch(kernel, ceil(N, block // 32), block, idx, weight, x, N, C, V)


def embedding_backward_v1(
    host: Host, dx: Argument, idx: Argument, dweight: Argument, N: int, C: int, V: int, *, block: int = 256
) -> None:
    """Version 1: one element a thread."""
    host.launch("encoder_backward_wte_v1<T>", ceil(V * C, block), block, dx, idx, dweight, N, C, V)


def embedding_backward_v2(
    host: Host, dx: Argument, idx: Argument, dweight: Argument, N: int, C: int, V: int, *, block: int = 256
) -> None:
    """Version 1 from 2²⁴ tokens on."""
    if N >= 1 << 24:
        return embedding_backward_v1(host, dx, idx, dweight, N, C, V)
    _words(host, dx, idx, dweight, N, C, V, host.width(C, dx, dweight))


def _words(
    host: Host, dx: Argument, idx: Argument, dwte: Argument, N: int, C: int, V: int, width: int
) -> None:  # fmt: skip
    """Every row of dwte, some words a block of 256 threads; N below 2^24."""
    room = min(N, ROOM)
    kernel = f"encoder_backward_wte_v2<T, {width}, {WORDS}>"
    host.launch(kernel, ceil(V, WORDS), 256, dx, idx, dwte, N, C, V, room, shared=4 * room)


def encoder_backward_v1(
    host: Host, dx: Argument, idx: Argument, dwte: Argument, dwpe: Argument,
    B: int, T: int, C: int, V: int, P: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 1: one element a thread."""
    host.launch("encoder_backward_wte_v1<T>", ceil(V * C, block), block, dx, idx, dwte, B * T, C, V)
    host.launch("encoder_backward_wpe_v1<T>", ceil(P * C, block), block, dx, dwpe, B, T, C, P)


def encoder_backward_v2(
    host: Host, dx: Argument, idx: Argument, dwte: Argument, dwpe: Argument,
    B: int, T: int, C: int, V: int, P: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 1 from 2²⁴ tokens on."""
    if B * T >= 1 << 24:
        return encoder_backward_v1(host, dx, idx, dwte, dwpe, B, T, C, V, P)
    width = host.width(C, dx, dwte, dwpe)
    _words(host, dx, idx, dwte, B * T, C, V, width)
    kernel = f"encoder_backward_wpe_v2<T, {width}>"
    host.launch(kernel, ceil(P * C, block * width), block, dx, dwpe, B, T, C, P)
