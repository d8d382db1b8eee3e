"""Launches of cross_entropy.cu: N rows of V logits, padded to Vp."""

from __future__ import annotations

from perfkit.kernels.cuda import Argument, Host, ceil


def _forward(
    host: Host, kernel: str, grid: int, block: int, tensors: tuple[Argument, ...], sizes: tuple[int, ...]
) -> None:
    """Each row's loss, then their mean."""
    logits, targets, loss, logsumexp = tensors
    N, V, Vp, ignore = sizes
    losses = host.scratch(N)
    host.launch(kernel, grid, block, logits, targets, losses, logsumexp, N, V, Vp, ignore)
    host.launch("cross_entropy_mean", 1, 1024, losses, targets, loss, N, ignore)


def cross_entropy_forward_v1(
    host: Host, logits: Argument, targets: Argument, loss: Argument, logsumexp: Argument,
    N: int, V: int, Vp: int, ignore: int, *, block: int = 64,
) -> None:  # fmt: skip
    """Version 1: one thread a row."""
    tensors = (logits, targets, loss, logsumexp)
    _forward(host, "cross_entropy_forward_v1<T>", ceil(N, block), block, tensors, (N, V, Vp, ignore))


def cross_entropy_forward_v2(
    host: Host, logits: Argument, targets: Argument, loss: Argument, logsumexp: Argument,
    N: int, V: int, Vp: int, ignore: int, *, block: int = 1024,
) -> None:  # fmt: skip
    """Version 2: one block a row, neighbouring threads on neighbours."""
    tensors = (logits, targets, loss, logsumexp)
    _forward(host, f"cross_entropy_forward_v2<T, {block}>", N, block, tensors, (N, V, Vp, ignore))


def cross_entropy_forward_v3(
    host: Host, logits: Argument, targets: Argument, loss: Argument, logsumexp: Argument,
    N: int, V: int, Vp: int, ignore: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 3: read once, by 16-byte accesses wherever the row starts."""
    tensors = (logits, targets, loss, logsumexp)
    _forward(host, f"cross_entropy_forward_v3<T, {block}>", N, block, tensors, (N, V, Vp, ignore))


def _backward(
    host: Host, kernel: str, grid: int, block: int, tensors: tuple[Argument, ...], sizes: tuple[int, ...]
) -> None:
    """Compute the factor of all gradients, then the gradients."""
    dloss, logits, targets, logsumexp, dlogits = tensors
    N, V, Vp, ignore = sizes
    factor = host.scratch(1)
    host.launch("cross_entropy_factor", 1, 1024, dloss, targets, factor, N, ignore)
    host.launch(kernel, grid, block, logits, targets, logsumexp, factor, dlogits, N, V, Vp, ignore)


def cross_entropy_backward_v1(
    host: Host, dloss: Argument, logits: Argument, targets: Argument, logsumexp: Argument, dlogits: Argument,
    N: int, V: int, Vp: int, ignore: int, *, block: int = 256,
) -> None:  # fmt: skip
    """Version 1: one thread an element."""
    tensors = (dloss, logits, targets, logsumexp, dlogits)
    _backward(host, "cross_entropy_backward_v1<T>", ceil(N * Vp, block), block, tensors, (N, V, Vp, ignore))


def cross_entropy_backward_v2(
    host: Host, dloss: Argument, logits: Argument, targets: Argument, logsumexp: Argument, dlogits: Argument,
    N: int, V: int, Vp: int, ignore: int, *, block: int = 1024,
) -> None:  # fmt: skip
    """Version 2: one block a row, neighbouring threads on neighbours."""
    tensors = (dloss, logits, targets, logsumexp, dlogits)
    _backward(host, f"cross_entropy_backward_v2<T, {block}>", N, block, tensors, (N, V, Vp, ignore))


def cross_entropy_backward_v3(
    host: Host, dloss: Argument, logits: Argument, targets: Argument, logsumexp: Argument, dlogits: Argument,
    N: int, V: int, Vp: int, ignore: int, *, block: int = 512,
) -> None:  # fmt: skip
    """Version 2 where logits and dlogits are not aligned alike."""
    if logits.misaligned != dlogits.misaligned:
        return cross_entropy_backward_v2(host, dloss, logits, targets, logsumexp, dlogits, N, V, Vp, ignore)
    tensors = (dloss, logits, targets, logsumexp, dlogits)
    _backward(host, f"cross_entropy_backward_v3<T, {block}>", N, block, tensors, (N, V, Vp, ignore))
