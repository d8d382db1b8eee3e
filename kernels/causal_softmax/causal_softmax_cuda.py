"""Launches of causal_softmax.cu: M matrices of T rows and S columns."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

Float = Argument


def causal_softmax_forward_v1(
    host: Host, scores: Argument, att: Argument, M: int, T: int, S: int, scale: Float, *, block: int = 64
) -> None:
    """One thread a row."""
    host.launch("causal_softmax_forward_v1<T>", ceil(M * T, block), block, scores, att, M * T, T, S, scale)


def causal_softmax_backward_v1(
    host: Host, datt: Argument, att: Argument, dscores: Argument, M: int, T: int, S: int, scale: Float,
    *, block: int = 64,
) -> None:  # fmt: skip
    """One thread a row."""
    host.launch("causal_softmax_backward_v1<T>", ceil(M * T, block), block, datt, att, dscores, M * T, T, S, scale)


def causal_softmax_forward_v2(
    host: Host, scores: Argument, att: Argument, M: int, T: int, S: int, scale: Float, *, block: int = 256
) -> None:
    """One warp a row."""
    kernel = f"causal_softmax_forward_v2<T, {host.width(S, scores, att)}>"
    host.launch(kernel, ceil(M * T, block // 32), block, scores, att, M * T, T, S, scale)


def causal_softmax_backward_v2(
    host: Host, datt: Argument, att: Argument, dscores: Argument, M: int, T: int, S: int, scale: Float,
    *, block: int = 256,
) -> None:  # fmt: skip
    """One warp a row."""
    kernel = f"causal_softmax_backward_v2<T, {host.width(S, datt, att, dscores)}>"
    host.launch(kernel, ceil(M * T, block // 32), block, datt, att, dscores, M * T, T, S, scale)


def causal_softmax_forward_v3(
    host: Host, scores: Argument, att: Argument, M: int, T: int, S: int, scale: Float, *, block: int = 64
) -> None:
    """A row in registers; version 2 for longer ones."""
    width = host.width(S, scores, att)
    held = host.row_in_registers(S, width, block)
    if held is None:
        return causal_softmax_forward_v2(host, scores, att, M, T, S, scale)
    kernel = f"causal_softmax_forward_v3<T, {width}, {held.packs}, {held.threads}, {held.block}>"
    host.launch(kernel, ceil(M * T, held.rows), held.block, scores, att, M * T, T, S, scale)


def causal_softmax_backward_v3(
    host: Host, datt: Argument, att: Argument, dscores: Argument, M: int, T: int, S: int, scale: Float,
    *, block: int = 64,
) -> None:  # fmt: skip
    """Both rows in registers; version 2 for longer ones."""
    width = host.width(S, datt, att, dscores)
    held = host.row_in_registers(S, width, block)
    if held is None:
        return causal_softmax_backward_v2(host, datt, att, dscores, M, T, S, scale)
    kernel = f"causal_softmax_backward_v3<T, {width}, {held.packs}, {held.threads}, {held.block}>"
    host.launch(kernel, ceil(M * T, held.rows), held.block, datt, att, dscores, M * T, T, S, scale)
