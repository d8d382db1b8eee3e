"""Launches of norm.cu: n elements."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

PACKS = 4  # accesses of a thread under way at once


def global_norm_v1(host: Host, x: Argument, squares: Argument, n: int) -> None:
    """Version 1: one block."""
    host.launch("global_norm_v1<T>", 1, 1024, x, squares, n)


def global_norm_v2(host: Host, x: Argument, squares: Argument, n: int, *, block: int = 256) -> None:
    """Version 2: many blocks, their parts summed in a fixed order."""
    count = max(1, min(ceil(n, block), 2048 // block * host.device.multiprocessors))
    parts = host.scratch(count)
    host.launch(f"global_norm_v2<T, {block}>", count, block, x, parts, n)
    host.launch("global_norm_sum<256>", 1, 256, parts, squares, count)


def global_norm_v3(host: Host, x: Argument, squares: Argument, n: int, *, block: int = 256) -> None:
    """Version 3: 16-byte accesses, four of a thread under way at once."""
    width = host.width(0, x)
    count = max(1, min(ceil(n, block * width * PACKS), 2048 // block * host.device.multiprocessors))
    parts = host.scratch(count)
    host.launch(f"global_norm_v3<T, {width}, {PACKS}, {block}>", count, block, x, parts, n)
    host.launch("global_norm_sum<256>", 1, 256, parts, squares, count)
