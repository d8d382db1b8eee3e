"""Launches of softmax.cu: N rows of M columns."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

THREADS = 512  # of a block that holds a long row, or its part, in shared memory
RESIDENT = 2  # such blocks of a multiprocessor


def softmax_forward_v1(host: Host, x: Argument, y: Argument, N: int, M: int, *, block: int = 64) -> None:
    """Version 1: one thread a row."""
    host.launch("softmax_forward_v1<T>", ceil(N, block), block, x, y, N, M)


def softmax_backward_v1(
    host: Host, dy: Argument, y: Argument, dx: Argument, N: int, M: int, *, block: int = 64
) -> None:
    """Version 1: one thread a row."""
    host.launch("softmax_backward_v1<T>", ceil(N, block), block, dy, y, dx, N, M)


def softmax_forward_v2(host: Host, x: Argument, y: Argument, N: int, M: int, *, block: int = 256) -> None:
    """Version 2: one block a row, 16-byte accesses wherever it starts."""
    if x.misaligned != y.misaligned:
        return softmax_forward_v1(host, x, y, N, M)
    host.launch(f"softmax_forward_v2<T, {block}>", N, block, x, y, N, M)


def softmax_backward_v2(
    host: Host, dy: Argument, y: Argument, dx: Argument, N: int, M: int, *, block: int = 256
) -> None:
    """Version 2: one block a row, 16-byte accesses wherever it starts."""
    if not dy.misaligned == y.misaligned == dx.misaligned:
        return softmax_backward_v1(host, dy, y, dx, N, M)
    host.launch(f"softmax_backward_v2<T, {block}>", N, block, dy, y, dx, N, M)


def softmax_forward_v3(host: Host, x: Argument, y: Argument, N: int, M: int, *, block: int = 128) -> None:
    """Version 3: the row is read once: in registers, or over a cluster's shared memory."""
    width = host.width(M, x, y)
    held = host.row_in_registers(M, width, block)
    shared = host.shared_rows(M, resident=RESIDENT)
    if held is not None:
        kernel = f"softmax_forward_short<T, {width}, {held.packs}, {held.threads}, {held.block}>"
        host.launch(kernel, ceil(N, held.rows), held.block, x, y, N, M)
    elif shared is None or x.misaligned != y.misaligned:
        softmax_forward_v2(host, x, y, N, M, block=1024)
    elif shared.blocks > 1:
        kernel = f"softmax_forward_cluster<T, {THREADS}, {shared.blocks}>"
        host.launch(kernel, N * shared.blocks, THREADS, x, y, N, M, shared=shared.bytes)
    else:
        host.launch(f"softmax_forward_long<T, {THREADS}>", N, THREADS, x, y, N, M, shared=shared.bytes)


def softmax_backward_v3(
    host: Host, dy: Argument, y: Argument, dx: Argument, N: int, M: int, *, block: int = 128
) -> None:
    """Version 3: both rows are read once: in registers, or over a cluster's shared memory."""
    width = host.width(M, dy, y, dx)
    held = host.row_in_registers(M, width, block)
    shared = host.shared_rows(M, 2, RESIDENT)
    if held is not None:
        kernel = f"softmax_backward_short<T, {width}, {held.packs}, {held.threads}, {held.block}>"
        host.launch(kernel, ceil(N, held.rows), held.block, dy, y, dx, N, M)
    elif shared is None or shared.blocks == 1 or not dy.misaligned == y.misaligned == dx.misaligned:
        softmax_backward_v2(host, dy, y, dx, N, M, block=1024)
    else:
        kernel = f"softmax_backward_cluster<T, {THREADS}, {shared.blocks}>"
        host.launch(kernel, N * shared.blocks, THREADS, dy, y, dx, N, M, shared=shared.bytes)
