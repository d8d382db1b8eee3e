"""Launches of bias.cu: N rows of M columns."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

PACKS = 1  # accesses to each tensor by one thread, under way at once
ROWS = 4  # rows of one thread, under way at once


def bias_gradient_v1(host: Host, dy: Argument, db: Argument, N: int, M: int, *, block: int = 64) -> None:
    """Version 1: one thread a column."""
    host.launch("bias_gradient_v1<T>", ceil(M, block), block, dy, db, N, M)


def bias_gradient_v2(host: Host, dy: Argument, db: Argument, N: int, M: int, add: int) -> None:
    """Version 2: parts of the rows, summed in a fixed order."""
    host.sum_columns("bias_gradient_v2<T>", (32, 1), (dy,), db, N, M, add=add)


def bias_gradient_v3(host: Host, dy: Argument, db: Argument, N: int, M: int, add: int) -> None:
    """Version 3: 16-byte accesses, four rows of a thread under way at once."""
    width = host.width(M, dy)
    host.sum_columns(f"bias_gradient_v3<T, {width}, {ROWS}>", (32 * width, ROWS), (dy,), db, N, M, add=add)


def bias_relu_forward_v1(
    host: Host, x: Argument, bias: Argument, y: Argument, N: int, M: int, *, block: int = 256
) -> None:
    """Version 1: one element a thread."""
    host.launch("bias_relu_forward_v1<T>", ceil(N * M, block), block, x, bias, y, N * M, M)


def bias_relu_forward_v2(
    host: Host, x: Argument, bias: Argument, y: Argument, N: int, M: int, *, block: int = 256
) -> None:
    """Version 2: 16-byte accesses."""
    width = host.width(M, x, bias, y)
    kernel = f"bias_relu_forward_v2<T, {width}, {PACKS}>"
    host.launch(kernel, ceil(N * M, block * width * PACKS), block, x, bias, y, N * M, M)


def bias_relu_backward_v1(host: Host, dy: Argument, y: Argument, dx: Argument, n: int, *, block: int = 256) -> None:
    """Version 1: one element a thread."""
    host.launch("bias_relu_backward_v1<T>", ceil(n, block), block, dy, y, dx, n)


def bias_relu_backward_v2(host: Host, dy: Argument, y: Argument, dx: Argument, n: int, *, block: int = 256) -> None:
    """Version 2: 16-byte accesses."""
    width = host.width(0, dy, y, dx)
    kernel = f"bias_relu_backward_v2<T, {width}, {PACKS}>"
    host.launch(kernel, ceil(n, block * width * PACKS), block, dy, y, dx, n)
