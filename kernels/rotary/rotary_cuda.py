"""Launches of rotary.cu: N = B·T positions with NH + NKV heads of P pairs."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

MOST_THREADS = 1024  # of a block


def _turn(
    host: Host, kernel: str, width: int, block: int, tensors: tuple[Argument, ...], sizes: tuple[int, ...]
) -> None:
    N, _, NH, NKV, P = sizes
    host.launch(kernel, ceil(N * (NH + NKV) * (P // width), block), block, *tensors, *sizes)


def _turn_positions(host: Host, name: str, block: int, tensors: tuple[Argument, ...], sizes: tuple[int, ...]) -> None:
    """A block a position, of as many threads as whole heads' accesses take; version 2 for heads longer than a block."""
    N, _, NH, NKV, P = sizes
    width = host.width(P, *tensors)
    packs = P // width
    if packs > MOST_THREADS:
        return _turn(host, f"{name}_v2<T, {width}>", width, 256, tensors, sizes)
    slots = max(1, min(block // packs, NH + NKV))
    ahead = min(4, ceil(NH + NKV, slots))
    host.launch(f"{name}_v3<T, {width}, {ahead}>", N, slots * packs, *tensors, *sizes)


def rotary_forward_v1(
    host: Host, q: Argument, k: Argument, cos: Argument, sin: Argument, turned_q: Argument, turned_k: Argument,
    N: int, T: int, NH: int, NKV: int, P: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 1: one pair a thread."""
    _turn(host, "rotary_forward_v1<T>", 1, block, (q, k, cos, sin, turned_q, turned_k), (N, T, NH, NKV, P))


def rotary_backward_v1(
    host: Host, q: Argument, k: Argument, cos: Argument, sin: Argument, dq: Argument, dk: Argument,
    N: int, T: int, NH: int, NKV: int, P: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 1: one pair a thread."""
    _turn(host, "rotary_backward_v1<T>", 1, block, (q, k, cos, sin, dq, dk), (N, T, NH, NKV, P))


def rotary_forward_v2(
    host: Host, q: Argument, k: Argument, cos: Argument, sin: Argument, turned_q: Argument, turned_k: Argument,
    N: int, T: int, NH: int, NKV: int, P: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 2: 16-byte accesses to both halves of a head."""
    tensors = (q, k, cos, sin, turned_q, turned_k)
    width = host.width(P, *tensors)
    _turn(host, f"rotary_forward_v2<T, {width}>", width, block, tensors, (N, T, NH, NKV, P))


def rotary_backward_v2(
    host: Host, q: Argument, k: Argument, cos: Argument, sin: Argument, dq: Argument, dk: Argument,
    N: int, T: int, NH: int, NKV: int, P: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 2: 16-byte accesses to both halves of a head."""
    tensors = (q, k, cos, sin, dq, dk)
    width = host.width(P, *tensors)
    _turn(host, f"rotary_backward_v2<T, {width}>", width, block, tensors, (N, T, NH, NKV, P))


def rotary_forward_v3(
    host: Host, q: Argument, k: Argument, cos: Argument, sin: Argument, turned_q: Argument, turned_k: Argument,
    N: int, T: int, NH: int, NKV: int, P: int, *, block: int = 64,
) -> None:  # fmt: skip
    """Version 3: a thread turns several heads by angles read once."""
    _turn_positions(host, "rotary_forward", block, (q, k, cos, sin, turned_q, turned_k), (N, T, NH, NKV, P))


def rotary_backward_v3(
    host: Host, q: Argument, k: Argument, cos: Argument, sin: Argument, dq: Argument, dk: Argument,
    N: int, T: int, NH: int, NKV: int, P: int, *, block: int = 64,
) -> None:  # fmt: skip
    """Version 3: a thread turns several heads by angles read once."""
    _turn_positions(host, "rotary_backward", block, (q, k, cos, sin, dq, dk), (N, T, NH, NKV, P))
