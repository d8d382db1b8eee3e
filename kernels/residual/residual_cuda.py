"""Launches of residual.cu: n elements, or N rows of C columns."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

Float = Argument
PACKS = 1  # accesses to each tensor by one thread, under way at once


def residual_forward_v1(host: Host, a: Argument, b: Argument, y: Argument, n: int, *, block: int = 256) -> None:
    """Version 1: one element a thread."""
    host.launch("residual_forward_v1<T>", ceil(n, block), block, a, b, y, n)


def residual_forward_v2(host: Host, a: Argument, b: Argument, y: Argument, n: int, *, block: int = 256) -> None:
    """Version 2: 16-byte accesses."""
    width = host.width(0, a, b, y)
    host.launch(f"residual_forward_v2<T, {width}, {PACKS}>", ceil(n, block * width * PACKS), block, a, b, y, n)


def residual_layernorm_forward_v1(
    host: Host, a: Argument, b: Argument, weight: Argument, bias: Argument,
    x: Argument, y: Argument, mean: Argument, rstd: Argument, N: int, C: int, eps: Float, *, block: int = 64,
) -> None:  # fmt: skip
    """Version 1: one thread a row."""
    tensors = (a, b, weight, bias, x, y, mean, rstd)
    host.launch("residual_layernorm_forward_v1<T>", ceil(N, block), block, *tensors, N, C, eps)


def residual_layernorm_forward_v2(
    host: Host, a: Argument, b: Argument, weight: Argument, bias: Argument,
    x: Argument, y: Argument, mean: Argument, rstd: Argument, N: int, C: int, eps: Float, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 2: one warp a row, vectors within."""
    tensors = (a, b, weight, bias, x, y, mean, rstd)
    width = host.width(C, a, b, weight, bias, x, y)
    host.launch(f"residual_layernorm_forward_v2<T, {width}>", ceil(N, block // 32), block, *tensors, N, C, eps)


def residual_layernorm_forward_v3(
    host: Host, a: Argument, b: Argument, weight: Argument, bias: Argument,
    x: Argument, y: Argument, mean: Argument, rstd: Argument, N: int, C: int, eps: Float, *, block: int = 128,
) -> None:  # fmt: skip
    """Version 3: the row stays in registers and is read once."""
    tensors = (a, b, weight, bias, x, y, mean, rstd)
    width = host.width(C, a, b, weight, bias, x, y)
    held = host.row_in_registers(C, width, block)
    if held is None:
        return residual_layernorm_forward_v2(host, *tensors, N, C, eps)
    kernel = f"residual_layernorm_forward_v3<T, {width}, {held.packs}, {held.threads}, {held.block}>"
    host.launch(kernel, ceil(N, held.rows), held.block, *tensors, N, C, eps)
