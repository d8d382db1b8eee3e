"""Launches of classifier.cu: N rows of V logits, padded to Vp."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

Float = Argument


def classifier_v1(
    host: Host, logits: Argument, targets: Argument, losses: Argument,
    N: int, V: int, Vp: int, ignore: int, dloss: Float, *, block: int = 64,
) -> None:  # fmt: skip
    host.launch("classifier_v1<T>", ceil(N, block), block, logits, targets, losses, N, V, Vp, ignore, dloss)


def classifier_v2(
    host: Host, logits: Argument, targets: Argument, losses: Argument,
    N: int, V: int, Vp: int, ignore: int, dloss: Float, *, block: int = 1024,
) -> None:  # fmt: skip
    host.launch(f"classifier_v2<T, {block}>", N, block, logits, targets, losses, N, V, Vp, ignore, dloss)


def classifier_v3(
    host: Host, logits: Argument, targets: Argument, losses: Argument,
    N: int, V: int, Vp: int, ignore: int, dloss: Float,
) -> None:  # fmt: skip
    memory = ceil((Vp + 16) * host.item, 16) * 16  # a row, and the ends of its first and last access
    if memory + 1024 > host.device.shared:
        return classifier_v2(host, logits, targets, losses, N, V, Vp, ignore, dloss)
    alone = memory > host.device.shared // 2  # one block a multiprocessor
    threads = 1024 if alone else 512
    ahead = host.device.multiprocessors if alone else 0
    kernel = f"classifier_v3<T, {threads}>"
    host.launch(kernel, N, threads, logits, targets, losses, N, V, Vp, ignore, dloss, ahead, shared=memory)
