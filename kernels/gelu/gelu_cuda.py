"""Launches of gelu.cu."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

PACKS = 1  # accesses to each tensor by one thread, under way at once
AMAX_PACKS = 4  # the same where a block compares what it has found once
ROWS = 2  # rows of one thread, under way at once, where it adds them up


def gelu_forward_v1(host: Host, x: Argument, y: Argument, n: int, *, block: int = 256) -> None:
    """Version 1: one element a thread, with tanhf."""
    host.launch("gelu_forward_v1<T>", ceil(n, block), block, x, y, n)


def gelu_backward_v1(host: Host, dy: Argument, x: Argument, dx: Argument, n: int, *, block: int = 256) -> None:
    """Version 1: one element a thread, with tanhf."""
    host.launch("gelu_backward_v1<T>", ceil(n, block), block, dy, x, dx, n)


def gelu_forward_v2(host: Host, x: Argument, y: Argument, n: int, *, block: int = 256) -> None:
    """Version 2: 16-byte accesses; tanh by one exponential."""
    width = host.width(0, x, y)  # the kernel itself treats the elements beyond the last whole access
    host.launch(f"gelu_forward_v2<T, {width}, {PACKS}>", ceil(n, block * width * PACKS), block, x, y, n)


def gelu_backward_v2(host: Host, dy: Argument, x: Argument, dx: Argument, n: int, *, block: int = 256) -> None:
    """Version 2: 16-byte accesses; tanh by one exponential."""
    width = host.width(0, dy, x, dx)
    host.launch(f"gelu_backward_v2<T, {width}, {PACKS}>", ceil(n, block * width * PACKS), block, dy, x, dx, n)


def gelu_bias_backward_v1(host: Host, dy: Argument, x: Argument, dx: Argument, db: Argument, N: int, M: int) -> None:
    """Version 1: one pass; 16-byte accesses, sums by parts of the rows, in a fixed order."""
    width = host.width(M, dy, x, dx)
    kernel = f"gelu_bias_backward_v1<T, {width}, {ROWS}>"
    host.sum_columns(kernel, (32 * width, ROWS), (dy, x, dx), db, N, M)


def gelu_amax_forward_v1(host: Host, x: Argument, amax: Argument, y: Argument, n: int, *, block: int = 256) -> None:
    """Version 1: 16-byte accesses; the largest value while it is in registers."""
    width = host.width(0, x, y)
    kernel = f"gelu_amax_forward_v1<T, {width}, {AMAX_PACKS}>"
    host.launch(kernel, ceil(n, block * width * AMAX_PACKS), block, x, amax, y, n)


def gelu_bias_amax_backward_v1(
    host: Host, dy: Argument, x: Argument, amax: Argument, dx: Argument, db: Argument, N: int, M: int
) -> None:
    """Version 1: `gelu_bias_backward` with the largest value while it is in registers."""
    width = host.width(M, dy, x, dx)
    kernel = f"gelu_bias_amax_backward_v1<T, {width}, {ROWS}>"
    host.sum_columns(kernel, (32 * width, ROWS), (dy, x, amax, dx), db, N, M)
