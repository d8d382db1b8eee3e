"""Launches of softmax.cu: N rows of M columns."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil


def softmax_forward_v1(host: Host, x: Argument, y: Argument, N: int, M: int, *, block: int = 64) -> None:
    host.launch("softmax_forward_v1<T>", ceil(N, block), block, x, y, N, M)


def softmax_backward_v1(
    host: Host, dy: Argument, y: Argument, dx: Argument, N: int, M: int, *, block: int = 64
) -> None:
    host.launch("softmax_backward_v1<T>", ceil(N, block), block, dy, y, dx, N, M)


def softmax_forward_v2(host: Host, x: Argument, y: Argument, N: int, M: int, *, block: int = 256) -> None:
    if x.misaligned != y.misaligned:
        return softmax_forward_v1(host, x, y, N, M)
    host.launch(f"softmax_forward_v2<T, {block}>", N, block, x, y, N, M)


def softmax_backward_v2(
    host: Host, dy: Argument, y: Argument, dx: Argument, N: int, M: int, *, block: int = 256
) -> None:
    if not dy.misaligned == y.misaligned == dx.misaligned:
        return softmax_backward_v1(host, dy, y, dx, N, M)
    host.launch(f"softmax_backward_v2<T, {block}>", N, block, dy, y, dx, N, M)


def softmax_forward_v3(host: Host, x: Argument, y: Argument, N: int, M: int, *, block: int = 128) -> None:
    width = host.width(M, x, y)
    held = host.row_in_registers(M, width, block)
    memory = (M + 16) * host.item  # a row, and the ends of its first and last access
    if held is not None:
        kernel = f"softmax_forward_short<T, {width}, {held.packs}, {held.threads}, {held.block}>"
        host.launch(kernel, ceil(N, held.rows), held.block, x, y, N, M)
    elif memory + 1024 <= host.device.shared and x.misaligned == y.misaligned:
        threads = 1024 if memory > host.device.shared // 2 else 512
        host.launch(f"softmax_forward_long<T, {threads}>", N, threads, x, y, N, M, shared=ceil(memory, 16) * 16)
    else:
        softmax_forward_v2(host, x, y, N, M, block=1024)


def softmax_backward_v3(
    host: Host, dy: Argument, y: Argument, dx: Argument, N: int, M: int, *, block: int = 128
) -> None:
    width = host.width(M, dy, y, dx)
    held = host.row_in_registers(M, width, block)
    if held is None:  # two rows: more than shared memory holds
        return softmax_backward_v2(host, dy, y, dx, N, M, block=1024)
    kernel = f"softmax_backward_short<T, {width}, {held.packs}, {held.threads}, {held.block}>"
    host.launch(kernel, ceil(N, held.rows), held.block, dy, y, dx, N, M)
