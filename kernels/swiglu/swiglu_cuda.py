"""Launches of swiglu.cu."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

PACKS = 1  # accesses to each tensor by one thread, under way at once
AMAX_PACKS = 2  # the same where a block compares what it has found once


def swiglu_forward_v1(
    host: Host, gate: Argument, up: Argument, y: Argument, n: int, *, block: int = 256
) -> None:  # fmt: skip
    """Version 1: one element a thread."""
    host.launch("swiglu_forward_v1<T>", ceil(n, block), block, gate, up, y, n)


def swiglu_backward_v1(
    host: Host, dy: Argument, gate: Argument, up: Argument, dgate: Argument, dup: Argument,
    n: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 1: one element a thread."""
    host.launch("swiglu_backward_v1<T>", ceil(n, block), block, dy, gate, up, dgate, dup, n)


def swiglu_forward_v2(
    host: Host, gate: Argument, up: Argument, y: Argument, n: int, *, block: int = 256
) -> None:  # fmt: skip
    """Version 2: 16-byte accesses."""
    width = host.width(0, gate, up, y)  # the kernel itself treats the elements beyond the last whole access
    kernel = f"swiglu_forward_v2<T, {width}, {PACKS}>"
    host.launch(kernel, ceil(n, block * width * PACKS), block, gate, up, y, n)


def swiglu_backward_v2(
    host: Host, dy: Argument, gate: Argument, up: Argument, dgate: Argument, dup: Argument,
    n: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 2: 16-byte accesses."""
    width = host.width(0, dy, gate, up, dgate, dup)
    kernel = f"swiglu_backward_v2<T, {width}, {PACKS}>"
    host.launch(kernel, ceil(n, block * width * PACKS), block, dy, gate, up, dgate, dup, n)


def swiglu_amax_forward_v1(
    host: Host, gate: Argument, up: Argument, amax: Argument, y: Argument, n: int, *, block: int = 256
) -> None:  # fmt: skip
    """Version 1: 16-byte accesses; the largest value while it is in registers."""
    width = host.width(0, gate, up, y)
    kernel = f"swiglu_amax_forward_v1<T, {width}, {AMAX_PACKS}>"
    host.launch(kernel, ceil(n, block * width * AMAX_PACKS), block, gate, up, amax, y, n)


def swiglu_amax_backward_v1(
    host: Host, dy: Argument, gate: Argument, up: Argument, amax_gate: Argument, amax_up: Argument,
    dgate: Argument, dup: Argument, n: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 1: 16-byte accesses; the largest values while they are in registers."""
    width = host.width(0, dy, gate, up, dgate, dup)
    kernel = f"swiglu_amax_backward_v1<T, {width}, {AMAX_PACKS}>"
    blocks = ceil(n, block * width * AMAX_PACKS)
    host.launch(kernel, blocks, block, dy, gate, up, amax_gate, amax_up, dgate, dup, n)
