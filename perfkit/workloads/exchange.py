"""Tensors that ranks exchange in the middle of a model, with their gradients: for workloads that share a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class _AllToAll(torch.autograd.Function):
    """Rows of a tensor to every rank, and theirs to this one; backward sends the gradients where the rows came from."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        ctx.counts = received, sent
        return _exchanged(rows, sent, received)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _exchanged(gradients[0], *ctx.counts), None, None


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.scale, None


def _exchanged(rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
    out = rows.new_empty(sum(received), *rows.shape[1:])
    torch.distributed.all_to_all_single(out, rows.contiguous(), list(received), list(sent))
    return out


@torch.compiler.disable
def all_to_all(rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
    """rows (Σ sent, …) → (Σ received, …): `sent[r]` rows go to rank r, `received[r]` come from it, in the ranks' order.

    Gradients take the way back. A compiled graph ends here.
    """
    if rows.requires_grad:
        result: Tensor = _AllToAll.apply(rows, sent, received)
        return result
    return _exchanged(rows, sent, received)


def mean_of_ranks(x: Tensor, ranks: int) -> Tensor:
    """`x`, whose gradient is divided by the number of ranks: the loss is the mean of theirs."""
    result: Tensor = _Scaled.apply(x, 1.0 / ranks)
    return result
