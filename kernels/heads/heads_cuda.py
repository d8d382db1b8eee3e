"""Launches of heads.cu: B rows of T tokens, NH heads of HS."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

TOKENS = 2  # of one thread, under way at once
ROWS = 4  # tokens of one thread, under way at once, where it adds them up


def split_heads_forward_v1(
    host: Host, qkv: Argument, q: Argument, k: Argument, v: Argument,
    B: int, T: int, NH: int, HS: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 1: one element a thread."""
    n = 3 * B * T * NH * HS
    host.launch("split_heads_forward_v1<T>", ceil(n, block), block, qkv, q, k, v, n, T, NH, HS)


def split_heads_backward_v1(
    host: Host, dq: Argument, dk: Argument, dv: Argument, dqkv: Argument,
    B: int, T: int, NH: int, HS: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 1: one element a thread."""
    n = 3 * B * T * NH * HS
    host.launch("split_heads_backward_v1<T>", ceil(n, block), block, dq, dk, dv, dqkv, n, T, NH, HS)


def merge_heads_forward_v1(
    host: Host, x: Argument, y: Argument, B: int, T: int, NH: int, HS: int, *, block: int = 256
) -> None:
    """Version 1: one element a thread."""
    n = B * T * NH * HS
    host.launch("merge_heads_forward_v1<T>", ceil(n, block), block, x, y, n, T, NH, HS)


def merge_heads_backward_v1(
    host: Host, dy: Argument, dx: Argument, B: int, T: int, NH: int, HS: int, *, block: int = 256
) -> None:
    """Version 1: one element a thread."""
    n = B * T * NH * HS
    host.launch("merge_heads_backward_v1<T>", ceil(n, block), block, dy, dx, n, T, NH, HS)


def _move(host: Host, name: str, tensors: tuple[Argument, ...], parts: int, sizes: tuple[int, ...], block: int) -> None:
    """A grid of (groups of tokens, accesses of a token, rows of the batch), in equal blocks of at most `block`."""
    B, T, NH, HS = sizes
    width = host.width(HS, *tensors)
    accesses = parts * NH * HS // width
    blocks = ceil(accesses, block)
    threads = ceil(ceil(accesses, max(blocks, 1)), 32) * 32
    host.launch(f"{name}<T, {width}, {TOKENS}>", (ceil(T, TOKENS), blocks, B), threads, *tensors, T, NH, HS)


def split_heads_forward_v2(
    host: Host, qkv: Argument, q: Argument, k: Argument, v: Argument,
    B: int, T: int, NH: int, HS: int, *, block: int = 384,
) -> None:  # fmt: skip
    """Version 2: 16-byte accesses, two tokens of a thread at once."""
    _move(host, "split_heads_forward_v2", (qkv, q, k, v), 3, (B, T, NH, HS), block)


def split_heads_backward_v2(
    host: Host, dq: Argument, dk: Argument, dv: Argument, dqkv: Argument,
    B: int, T: int, NH: int, HS: int, *, block: int = 384,
) -> None:  # fmt: skip
    """Version 2: 16-byte accesses, two tokens of a thread at once."""
    _move(host, "split_heads_backward_v2", (dq, dk, dv, dqkv), 3, (B, T, NH, HS), block)


def merge_heads_forward_v2(
    host: Host, x: Argument, y: Argument, B: int, T: int, NH: int, HS: int, *, block: int = 384
) -> None:
    """Version 2: 16-byte accesses, two tokens of a thread at once."""
    _move(host, "merge_heads_forward_v2", (x, y), 1, (B, T, NH, HS), block)


def merge_heads_backward_v2(
    host: Host, dy: Argument, dx: Argument, B: int, T: int, NH: int, HS: int, *, block: int = 384
) -> None:
    """Version 2: 16-byte accesses, two tokens of a thread at once."""
    _move(host, "merge_heads_backward_v2", (dy, dx), 1, (B, T, NH, HS), block)


def split_heads_bias_backward_v1(
    host: Host, dq: Argument, dk: Argument, dv: Argument, dqkv: Argument, db: Argument, B: int, T: int, NH: int, HS: int
) -> None:
    """Version 1: one pass; 16-byte accesses, sums by parts of the tokens, in a fixed order."""
    width = host.width(HS, dq, dk, dv, dqkv)
    kernel = f"split_heads_bias_backward_v1<T, {width}, {ROWS}>"
    host.sum_columns(kernel, (32 * width, ROWS), (dq, dk, dv, dqkv), db, B * T, 3 * NH * HS, T, NH, HS)
