"""Launches of classifier.cu: N rows of V logits, padded to Vp."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil

Float = Argument
RESIDENT = 2  # blocks of a multiprocessor that hold a row, or its part, in shared memory


def classifier_v1(
    host: Host, logits: Argument, targets: Argument, losses: Argument,
    N: int, V: int, Vp: int, ignore: int, dloss: Float, *, block: int = 64,
) -> None:  # fmt: skip
    """Version 1: one thread a row."""
    host.launch("classifier_v1<T>", ceil(N, block), block, logits, targets, losses, N, V, Vp, ignore, dloss)


def classifier_v2(
    host: Host, logits: Argument, targets: Argument, losses: Argument,
    N: int, V: int, Vp: int, ignore: int, dloss: Float, *, block: int = 1024,
) -> None:  # fmt: skip
    """Version 2: one block a row, 16-byte accesses wherever it starts; read twice."""
    host.launch(f"classifier_v2<T, {block}>", N, block, logits, targets, losses, N, V, Vp, ignore, dloss)


def classifier_v3(
    host: Host, logits: Argument, targets: Argument, losses: Argument,
    N: int, V: int, Vp: int, ignore: int, dloss: Float, *, block: int = 512,
) -> None:  # fmt: skip
    """Version 3: the row stays in shared memory, over a cluster, and is read once."""
    shared = host.shared_rows(Vp, resident=RESIDENT)
    numbers = (N, V, Vp, ignore, dloss)
    if shared is None:
        return classifier_v2(host, logits, targets, losses, *numbers)
    name = f"classifier_cluster<T, {block}, {shared.blocks}>" if shared.blocks > 1 else f"classifier_v3<T, {block}>"
    host.launch(name, N * shared.blocks, block, logits, targets, losses, *numbers, shared=shared.bytes)
