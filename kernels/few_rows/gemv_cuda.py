"""Launches of gemv.cu: N rows of K columns, M outputs of each."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

WARPS = 16  # of a multiprocessor, at least: their loads under way hide memory's latency
PACKS = 4  # loads of a thread of each row of the weight, under way at once
BLOCK = 128  # threads, where a group is not larger
TILE_ROWS = 3  # from which on tensor cores are faster


def gemv_v1(host: Host, x: Argument, weight: Argument, y: Argument, N: int, K: int, M: int) -> None:
    """Version 1: one thread an output."""
    _one_each(host, x, weight, None, y, N, K, M)


def gemv_bias_v1(
    host: Host, x: Argument, weight: Argument, bias: Argument, y: Argument, N: int, K: int, M: int
) -> None:
    """Version 1: one thread an output."""
    _one_each(host, x, weight, bias, y, N, K, M)


def gemv_v2(host: Host, x: Argument, weight: Argument, y: Argument, N: int, K: int, M: int) -> None:
    """Version 2: one warp an output, 16-byte accesses."""
    _warps(host, x, weight, None, y, N, K, M)


def gemv_bias_v2(
    host: Host, x: Argument, weight: Argument, bias: Argument, y: Argument, N: int, K: int, M: int
) -> None:
    """Version 2: one warp an output, 16-byte accesses."""
    _warps(host, x, weight, bias, y, N, K, M)


def gemv_v3(host: Host, x: Argument, weight: Argument, y: Argument, N: int, K: int, M: int) -> None:
    """Version 3: as many threads an output as fill the GPU, loads of each under way together; outputs share what they
    read of x."""
    _groups(host, x, weight, None, y, N, K, M)


def gemv_bias_v3(
    host: Host, x: Argument, weight: Argument, bias: Argument, y: Argument, N: int, K: int, M: int
) -> None:
    """Version 3: as many threads an output as fill the GPU, loads of each under way together; outputs share what they
    read of x."""
    _groups(host, x, weight, bias, y, N, K, M)


def gemv_v4(host: Host, x: Argument, weight: Argument, y: Argument, N: int, K: int, M: int) -> None:
    """Version 4: sixteen outputs by tensor cores for up to 32 rows at once; in fp32, or of one or two, version 3."""
    _tiles(host, x, weight, None, y, N, K, M)


def gemv_bias_v4(
    host: Host, x: Argument, weight: Argument, bias: Argument, y: Argument, N: int, K: int, M: int
) -> None:
    """Version 4: sixteen outputs by tensor cores for up to 32 rows at once; in fp32, or of one or two, version 3."""
    _tiles(host, x, weight, bias, y, N, K, M)


def _one_each(
    host: Host, x: Argument, weight: Argument, bias: Argument | None, y: Argument, N: int, K: int, M: int
) -> None:
    host.launch(f"gemv_v1<T, {_flag(bias)}>", ceil(N * M, 64), 64, x, weight, bias or weight, y, N, K, M)


def _warps(
    host: Host, x: Argument, weight: Argument, bias: Argument | None, y: Argument, N: int, K: int, M: int
) -> None:
    width = host.width(K, x, weight)
    kernel = f"gemv_v2<T, {width}, {_flag(bias)}>"
    host.launch(kernel, ceil(N * M, 8), 256, x, weight, bias or weight, y, N, K, M)


def _groups(
    host: Host, x: Argument, weight: Argument, bias: Argument | None, y: Argument, N: int, K: int, M: int
) -> None:
    width = host.width(K, x, weight)
    rows = next(r for r in (1, 2, 4, 8) if r >= min(N, 8))
    outs = 1 if rows == 1 else 2  # of one row x is read once for each weight: from L1, as fast as that from memory
    packs = PACKS if rows <= 2 else 2
    threads = 32
    # Few outputs of long rows: several warps share one, as long as each thread of them has a load for itself.
    wanted = WARPS * host.device.multiprocessors
    while threads < 256 and ceil(M, outs) * threads // 32 < wanted and 2 * threads * width <= K:
        threads *= 2
    block = max(BLOCK, threads) if threads == 32 else threads
    kernel = f"gemv_v3<T, {width}, {rows}, {outs}, {packs}, {threads}, {block}, {_flag(bias)}>"
    grid = (ceil(M, outs * (block // threads)), ceil(N, rows))
    host.launch(kernel, grid, block, x, weight, bias or weight, y, N, K, M)


def _tiles(
    host: Host, x: Argument, weight: Argument, bias: Argument | None, y: Argument, N: int, K: int, M: int
) -> None:
    """Sixteen outputs a block; in fp32, of fewer than TILE_ROWS, or where accesses would not be aligned, version 3."""
    tile = host.tile(N, K, x, weight)
    if tile is None or N < TILE_ROWS:
        return _groups(host, x, weight, bias, y, N, K, M)
    kernel, grid = f"gemv_v4<{tile.parameters}, {_flag(bias)}>", (ceil(M, tile.OUTPUTS), ceil(N, tile.rows))
    host.launch(kernel, grid, 32 * tile.warps, x, weight, bias or weight, y, N, K, M, shared=tile.shared)


def _flag(bias: Argument | None) -> str:
    return "true" if bias else "false"
