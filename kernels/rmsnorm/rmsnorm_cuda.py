"""Launches of rmsnorm.cu: N rows of C columns."""

from __future__ import annotations

from perfkit.kernels.cuda import VECTOR_BYTES, Argument, Host, ceil

Float = Argument
# Threads of a multiprocessor in the fastest backward: 128 registers for each.
REGISTER_THREADS = 512
# Version 4: elements of a thread, most threads of a block, rows under way to a block, and the shortest row.
VALUES, MOST_THREADS, STAGES, LEAST = 32, 256, 3, 1536
CLUSTERS = (1, 2, 4, 8)  # blocks that may share a row
FEW_PARTS = 128  # whose sums a quarter of the threads takes
ADD_DX = 1  # bit of `add`: outputs that are added to


def _rows(host: Host, kernel: str, block: int, tensors: tuple[Argument, ...], N: int, C: int, eps: Float) -> None:
    """One thread a row."""
    host.launch(f"{kernel}<T>", ceil(N, block), block, *tensors, N, C, eps)


def _warps(host: Host, kernel: str, block: int, tensors: tuple[Argument, ...], N: int, C: int, eps: Float) -> None:
    """One warp a row; all tensors but the last, rstd, are rows of the working precision."""
    width = host.width(C, *tensors[:-1])
    host.launch(f"{kernel}<T, {width}>", ceil(N, block // 32), block, *tensors, N, C, eps)


def _held(host: Host, kernel: str, block: int, tensors: tuple[Argument, ...], N: int, C: int, eps: Float) -> None:
    """A row in the registers of a warp or a block; too long for that, one warp a row."""
    width = host.width(C, *tensors[:-1])
    held = host.row_in_registers(C, width, block)
    if held is None:
        return _warps(host, f"{kernel}_v2", 256, tensors, N, C, eps)
    name = f"{kernel}_v3<T, {width}, {held.packs}, {held.threads}, {held.block}>"
    host.launch(name, ceil(N, held.rows), held.block, *tensors, N, C, eps)


def rmsnorm_forward_v1(
    host: Host, x: Argument, weight: Argument, y: Argument, rstd: Argument, N: int, C: int, eps: Float,
    *, block: int = 64,
) -> None:  # fmt: skip
    """Version 1: one thread a row."""
    _rows(host, "rmsnorm_forward_v1", block, (x, weight, y, rstd), N, C, eps)


def rmsnorm_forward_v2(
    host: Host, x: Argument, weight: Argument, y: Argument, rstd: Argument, N: int, C: int, eps: Float,
    *, block: int = 256,
) -> None:  # fmt: skip
    """Version 2: one warp a row, vectors within."""
    _warps(host, "rmsnorm_forward_v2", block, (x, weight, y, rstd), N, C, eps)


def rmsnorm_forward_v3(
    host: Host, x: Argument, weight: Argument, y: Argument, rstd: Argument, N: int, C: int, eps: Float,
    *, block: int = 32,
) -> None:  # fmt: skip
    """Version 3: the row stays in registers and is read once."""
    _held(host, "rmsnorm_forward", block, (x, weight, y, rstd), N, C, eps)


def residual_rmsnorm_forward_v1(
    host: Host, a: Argument, b: Argument, weight: Argument, x: Argument, y: Argument, rstd: Argument,
    N: int, C: int, eps: Float, *, block: int = 64,
) -> None:  # fmt: skip
    """Version 1: one thread a row."""
    _rows(host, "residual_rmsnorm_forward_v1", block, (a, b, weight, x, y, rstd), N, C, eps)


def residual_rmsnorm_forward_v2(
    host: Host, a: Argument, b: Argument, weight: Argument, x: Argument, y: Argument, rstd: Argument,
    N: int, C: int, eps: Float, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 2: one warp a row, vectors within."""
    _warps(host, "residual_rmsnorm_forward_v2", block, (a, b, weight, x, y, rstd), N, C, eps)


def residual_rmsnorm_forward_v3(
    host: Host, a: Argument, b: Argument, weight: Argument, x: Argument, y: Argument, rstd: Argument,
    N: int, C: int, eps: Float, *, block: int = 128,
) -> None:  # fmt: skip
    """Version 3: the row stays in registers: x is written and not read again."""
    _held(host, "residual_rmsnorm_forward", block, (a, b, weight, x, y, rstd), N, C, eps)


def rmsnorm_backward_v1(
    host: Host, dy: Argument, x: Argument, weight: Argument, rstd: Argument, dx: Argument, dweight: Argument,
    N: int, C: int, *, block: int = 64,
) -> None:  # fmt: skip
    """dx by one thread a row, dweight by one thread a column."""
    host.launch("rmsnorm_backward_rows_v1<T>", ceil(N, block), block, dy, x, weight, rstd, dx, N, C)
    host.launch("rmsnorm_backward_columns_v1<T>", ceil(C, block), block, dy, x, rstd, dweight, N, C)


def rmsnorm_backward_v2(
    host: Host, dy: Argument, x: Argument, weight: Argument, rstd: Argument, dx: Argument, dweight: Argument,
    N: int, C: int, add: int, *, block: int = 256,
) -> None:  # fmt: skip
    """dx by one warp a row; dweight by parts of the rows, then their sum."""
    width = host.width(C, dy, x, weight, dx)
    kernel = f"rmsnorm_backward_rows_v2<T, {width}>"
    host.launch(kernel, ceil(N, block // 32), block, dy, x, weight, rstd, dx, N, C, add)
    parts = max(1, min(ceil(N, 8), ceil(8 * host.device.multiprocessors, ceil(C, 32))))
    sums = host.scratch(parts * C)
    host.launch("rmsnorm_backward_columns_v2<T>", (ceil(C, 32), parts), 256, dy, x, rstd, sums, N, C)
    host.launch("rmsnorm_backward_parts<T>", ceil(C, 32), 1024, sums, dweight, parts, C, add)


def rmsnorm_backward_v3(
    host: Host, dy: Argument, x: Argument, weight: Argument, rstd: Argument, dx: Argument, dweight: Argument,
    N: int, C: int, add: int, *, block: int = 128,
) -> None:  # fmt: skip
    """Both from rows in registers; version 2 where they, or the sums in shared memory, do not fit."""
    width = host.width(C, dy, x, weight, dx)
    held = host.row_in_registers(C, width, block, values=32 if host.item == 2 else 24)  # of x, dy and the sums
    shared = 4 * C * (held.rows if held else 0)
    if held is None or N == 0 or shared > host.device.shared:
        return rmsnorm_backward_v2(host, dy, x, weight, rstd, dx, dweight, N, C, add)
    resident = max(1, REGISTER_THREADS // held.block)
    parts = min(ceil(N, held.rows), resident * host.device.multiprocessors)
    sums = host.scratch(parts * C)
    sizes = f"{width}, {held.packs}, {held.threads}, {held.block}, {resident}"
    kernel = f"rmsnorm_backward_v3<T, {sizes}, {str(bool(add & ADD_DX)).lower()}>"
    host.launch(kernel, parts, held.block, dy, x, weight, rstd, dx, sums, N, C, shared=shared)
    host.launch("rmsnorm_backward_parts<T>", ceil(C, 32), 1024, sums, dweight, parts, C, add)


def rmsnorm_backward_v4(
    host: Host, dy: Argument, x: Argument, weight: Argument, rstd: Argument, dx: Argument, dweight: Argument,
    N: int, C: int, add: int,
) -> None:  # fmt: skip
    """Both from rows that bulk copies bring to shared memory of a block or of a cluster. Version 3 before sm_90, where
    accesses of 16 bytes would not be aligned, and for rows that would leave many threads without columns."""
    width, arch = VECTOR_BYTES // host.item, int(host.device.arch.removeprefix("sm_"))
    blocks = next((b for b in CLUSTERS if b * MOST_THREADS * VALUES >= C and C % (b * width) == 0), None)
    threads = next((t for t in (64, 128, 256) if blocks and C // blocks <= t * VALUES), None)
    if (
        blocks is None or threads is None or arch < 90 or N == 0 or C < LEAST
        or host.width(C, dy, x, weight, dx) < width or ceil(C // blocks, threads * width) * width < VALUES
    ):  # fmt: skip
        return rmsnorm_backward_v3(host, dy, x, weight, rstd, dx, dweight, N, C, add)
    resident = MOST_THREADS // threads
    fit = host.device.multiprocessors
    if blocks > 2:  # a cluster lies within a group of multiprocessors, whose number no group's size need divide
        fit = fit * 7 // 8
    clusters = min(N, resident * fit // blocks)
    sums = host.scratch(clusters * C)
    sizes = f"{width}, {VALUES // width}, {threads}, {STAGES}, {blocks}, {resident}"
    kernel = f"rmsnorm_backward_v4<T, {sizes}, {str(bool(add & ADD_DX)).lower()}>"
    shared = STAGES * 2 * (C // blocks) * host.item
    host.launch(kernel, clusters * blocks, threads, dy, x, weight, rstd, dx, sums, N, C, shared=shared)
    few = clusters <= FEW_PARTS
    total = "rmsnorm_backward_few_parts<T>" if few else "rmsnorm_backward_parts<T>"
    host.launch(total, ceil(C, 32), 256 if few else 1024, sums, dweight, clusters, C, add)
