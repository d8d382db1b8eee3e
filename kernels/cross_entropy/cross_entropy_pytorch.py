"""What the family replaces: PyTorch's own operators, and the operations as models write them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from perfkit.kernels.replaced import Call, gradients

aten = torch.ops.aten

RESULTS = {"cross_entropy_forward": ("loss",), "classifier": ("", "losses")}


def _masked(logits: Tensor, vocabulary: int) -> Tensor:
    """Logits without their padding, which PyTorch does not know; it reads a padded row all the same."""
    return logits.masked_fill(torch.arange(logits.shape[1], device=logits.device) >= vocabulary, float("-inf"))


def cross_entropy_forward(logits: Tensor, targets: Tensor, vocabulary: int, ignore_index: int) -> Call:
    """log_softmax and nll_loss; padding is masked before the timed call."""
    masked = _masked(logits, vocabulary)
    return lambda: aten.nll_loss_forward(aten._log_softmax(masked, 1, False), targets, None, 1, ignore_index)[0]


def cross_entropy_backward(
    dloss: Tensor, logits: Tensor, targets: Tensor, logsumexp: Tensor, vocabulary: int, ignore_index: int
) -> Call:
    """The two backward operators, from the log_softmax that forward kept."""
    dloss = dloss.to(logits.dtype)
    kept = aten._log_softmax(_masked(logits, vocabulary), 1, False)
    weight = aten.nll_loss_forward(kept, targets, None, 1, ignore_index)[1]

    def call() -> Any:
        picked = aten.nll_loss_backward(dloss, kept, targets, None, 1, ignore_index, weight)
        return aten._log_softmax_backward_data(picked, kept, 1, logits.dtype)

    return call


def classifier(logits: Tensor, targets: Tensor, dloss: float, vocabulary: int, ignore_index: int) -> Call:
    """log_softmax + nll_loss, and their backward; over all columns when they have no padding, as a model would."""
    real = logits[:, :vocabulary].contiguous()
    upstream = torch.full((len(real),), dloss, dtype=real.dtype, device=real.device)
    none = torch.zeros((), dtype=real.dtype, device=real.device)

    def call() -> Any:
        kept = aten._log_softmax(real, 1, False)
        losses = aten.nll_loss_forward(kept, targets, None, 0, ignore_index)[0]
        picked = aten.nll_loss_backward(upstream, kept, targets, None, 0, ignore_index, none)
        return aten._log_softmax_backward_data(picked, kept, 1, real.dtype), losses

    return call


def cross_entropy(logits: Tensor, targets: Tensor, ignore_index: int) -> Tensor:
    """The logits converted to fp32 first (transformers' `ForCausalLMLoss`)."""
    return F.cross_entropy(logits.float(), targets, ignore_index=ignore_index)


def words(logits: Tensor, vocabulary: int) -> Tensor:
    """Logits (N, Vp) without their padding, which a model's code does not have: (N, V)."""
    return logits if logits.shape[1] == vocabulary else logits[:, :vocabulary]


def naive_cross_entropy_forward(logits: Tensor, targets: Tensor, vocabulary: int, ignore_index: int) -> Call:
    """logits (N, V), targets (N): the mean loss."""
    return lambda: cross_entropy(words(logits, vocabulary), targets, ignore_index)


def naive_cross_entropy_backward(
    dloss: Tensor, logits: Tensor, targets: Tensor, logsumexp: Tensor, vocabulary: int, ignore_index: int
) -> Call:
    """logits (N, V), targets (N), dloss (): the gradient of the logits."""

    def loss(logits: Tensor) -> Tensor:
        return cross_entropy(words(logits, vocabulary), targets, ignore_index)

    return gradients(loss, [logits], dloss.float())
