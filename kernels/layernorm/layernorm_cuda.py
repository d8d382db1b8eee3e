"""Launches of layernorm.cu: N rows of C columns."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

Float = Argument
# Threads of a multiprocessor in the fastest backward, by the bytes of an element: 168 registers for each, or 128.
REGISTER_THREADS = {4: 384, 2: 512}
ADD_DX = 1  # bit of `add`: outputs that are added to


def layernorm_forward_v1(
    host: Host, x: Argument, weight: Argument, bias: Argument, y: Argument, mean: Argument, rstd: Argument,
    N: int, C: int, eps: Float, *, block: int = 64,
) -> None:  # fmt: skip
    """Version 1: one thread a row."""
    host.launch("layernorm_forward_v1<T>", ceil(N, block), block, x, weight, bias, y, mean, rstd, N, C, eps)


def layernorm_backward_v1(
    host: Host, dy: Argument, x: Argument, weight: Argument, mean: Argument, rstd: Argument,
    dx: Argument, dweight: Argument, dbias: Argument, N: int, C: int, *, block: int = 64,
) -> None:  # fmt: skip
    """Version 1: one thread a row, one thread a column."""
    host.launch("layernorm_backward_rows_v1<T>", ceil(N, block), block, dy, x, weight, mean, rstd, dx, N, C)
    host.launch("layernorm_backward_columns_v1<T>", ceil(C, block), block, dy, x, mean, rstd, dweight, dbias, N, C)


def layernorm_forward_v2(
    host: Host, x: Argument, weight: Argument, bias: Argument, y: Argument, mean: Argument, rstd: Argument,
    N: int, C: int, eps: Float, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 2: one warp a row, vectors within."""
    width = host.width(C, x, weight, bias, y)
    kernel = f"layernorm_forward_v2<T, {width}>"
    host.launch(kernel, ceil(N, block // 32), block, x, weight, bias, y, mean, rstd, N, C, eps)


def layernorm_backward_v2(
    host: Host, dy: Argument, x: Argument, weight: Argument, mean: Argument, rstd: Argument,
    dx: Argument, dweight: Argument, dbias: Argument, N: int, C: int, add: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 2: one warp a row; parts of the rows for the sums over them."""
    width = host.width(C, dy, x, weight, dx)
    kernel = f"layernorm_backward_rows_v2<T, {width}>"
    host.launch(kernel, ceil(N, block // 32), block, dy, x, weight, mean, rstd, dx, N, C, add)
    parts = max(1, min(ceil(N, 8), ceil(8 * host.device.multiprocessors, ceil(C, 32))))
    sums = host.scratch(parts * 2 * C)
    host.launch("layernorm_backward_columns_v2<T>", (ceil(C, 32), parts), 256, dy, x, mean, rstd, sums, N, C)
    host.launch("layernorm_backward_parts<T>", 2 * ceil(C, 32), 1024, sums, dweight, dbias, parts, C, add)


def layernorm_forward_v3(
    host: Host, x: Argument, weight: Argument, bias: Argument, y: Argument, mean: Argument, rstd: Argument,
    N: int, C: int, eps: Float, *, block: int = 32,
) -> None:  # fmt: skip
    """Version 3: the row stays in registers and is read once."""
    width = host.width(C, x, weight, bias, y)
    held = host.row_in_registers(C, width, block)
    if held is None:
        return layernorm_forward_v2(host, x, weight, bias, y, mean, rstd, N, C, eps)
    kernel = f"layernorm_forward_v3<T, {width}, {held.packs}, {held.threads}, {held.block}>"
    host.launch(kernel, ceil(N, held.rows), held.block, x, weight, bias, y, mean, rstd, N, C, eps)


def layernorm_backward_v3(
    host: Host, dy: Argument, x: Argument, weight: Argument, mean: Argument, rstd: Argument,
    dx: Argument, dweight: Argument, dbias: Argument, N: int, C: int, add: int, *, block: int = 128,
) -> None:  # fmt: skip
    """Version 3: dx and both sums from one reading of dy and x, kept in registers."""
    width = host.width(C, dy, x, weight, dx)
    held = host.row_in_registers(C, width, block, values=24)  # of x and dy, and the two sums over rows
    if held is None or N == 0:
        return layernorm_backward_v2(host, dy, x, weight, mean, rstd, dx, dweight, dbias, N, C, add)
    resident = max(1, REGISTER_THREADS[host.item] // held.block)
    parts = min(ceil(N, held.rows), resident * host.device.multiprocessors)
    sums = host.scratch(parts * 2 * C)
    sizes = f"{width}, {held.packs}, {held.threads}, {held.block}, {resident}"
    kernel = f"layernorm_backward_v3<T, {sizes}, {str(bool(add & ADD_DX)).lower()}>"
    host.launch(kernel, parts, held.block, dy, x, weight, mean, rstd, dx, sums, N, C, shared=8 * C * held.rows)
    host.launch("layernorm_backward_parts<T>", 2 * ceil(C, 32), 1024, sums, dweight, dbias, parts, C, add)
