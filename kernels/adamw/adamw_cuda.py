"""Launches of adamw.cu: n parameters."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

Float = Argument


def adamw_step_v1(
    host: Host, param: Argument, grad: Argument, m: Argument, v: Argument, n: int, *numbers: Float, block: int = 256
) -> None:
    """Version 1: one parameter a thread."""
    host.launch("adamw_step_v1<T>", ceil(n, block), block, param, grad, m, v, n, *numbers)


def adamw_step_v2(
    host: Host, param: Argument, grad: Argument, m: Argument, v: Argument, n: int, *numbers: Float, block: int = 256
) -> None:
    """Version 2: 16-byte accesses."""
    width = min(host.width(0, param, grad), 1 if m.misaligned or v.misaligned else 4)
    host.launch(f"adamw_step_v2<T, {width}>", ceil(n, block * width), block, param, grad, m, v, n, *numbers)
