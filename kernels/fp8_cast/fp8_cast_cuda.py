"""Launches of fp8_cast.cu."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

PACKS = 4  # accesses by one thread, under way at once
SIDE, COLUMNS, ROWS = 128, 8, 16  # of a tile; what widths and heights must divide by for 16-byte accesses


def fp8_amax_v1(host: Host, x: Argument, amax: Argument, n: int, *, block: int = 256) -> None:
    """Version 1: 16-byte accesses, one comparison in memory a block."""
    width = host.width(0, x)  # the kernel itself treats the elements beyond the last whole access
    host.launch(f"fp8_amax_v1<T, {width}, {PACKS}>", ceil(n, block * width * PACKS), block, x, amax, n)


def fp8_cast_v1(
    host: Host, x: Argument, amax: Argument, x8: Argument, x8t: Argument, scale: Argument, N: int, M: int
) -> None:
    """Version 1: one element a thread."""
    _plain(host, "E4M3", x, amax, x8, x8t, scale, N, M)


def fp8_gradient_cast_v1(
    host: Host, x: Argument, amax: Argument, x8: Argument, x8t: Argument, scale: Argument, N: int, M: int
) -> None:
    """Version 1: one element a thread."""
    _plain(host, "E5M2", x, amax, x8, x8t, scale, N, M)


def fp8_cast_v2(
    host: Host, x: Argument, amax: Argument, x8: Argument, x8t: Argument, scale: Argument, N: int, M: int
) -> None:
    """Version 2: tiles by way of shared memory, 16-byte accesses to all tensors."""
    _tiles(host, "E4M3", x, amax, x8, x8t, scale, N, M)


def fp8_gradient_cast_v2(
    host: Host, x: Argument, amax: Argument, x8: Argument, x8t: Argument, scale: Argument, N: int, M: int
) -> None:
    """Version 2: tiles by way of shared memory, 16-byte accesses to all tensors."""
    _tiles(host, "E5M2", x, amax, x8, x8t, scale, N, M)


def _plain(
    host: Host, form: str, x: Argument, amax: Argument, x8: Argument, x8t: Argument, scale: Argument, N: int, M: int
) -> None:
    host.launch(f"fp8_cast_v1<T, {form}>", ceil(N * M, 256), 256, x, amax, x8, x8t, scale, N, M)


def _tiles(
    host: Host, form: str, x: Argument, amax: Argument, x8: Argument, x8t: Argument, scale: Argument, N: int, M: int
) -> None:
    if M % COLUMNS or N % ROWS or x.misaligned or x8.misaligned % COLUMNS or x8t.misaligned:
        return _plain(host, form, x, amax, x8, x8t, scale, N, M)
    blocks = ceil(N, SIDE) * ceil(M, SIDE)
    host.launch(f"fp8_cast_v2<T, {form}>", blocks, 512, x, amax, x8, x8t, scale, N, M)
