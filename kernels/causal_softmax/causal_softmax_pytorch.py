"""What the family replaces: PyTorch's own operators."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from perfkit.kernels.replaced import Call

aten = torch.ops.aten


def _future(scores: Tensor) -> Tensor:
    return torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(
        1 + scores.shape[-1] - scores.shape[-2]
    )


def causal_softmax_forward(scores: Tensor, scale: float) -> Call:
    """As models write it: the future is masked, then a softmax."""
    future = _future(scores)
    return lambda: torch.softmax((scores * scale).masked_fill(future, -math.inf), dim=-1)


def causal_softmax_backward(datt: Tensor, att: Tensor, scale: float) -> Call:
    """datt and att (…, T, S), att the forward's result: the gradient of the scores before the scale."""
    future = _future(att)
    return lambda: aten._softmax_backward_data(datt, att, -1, att.dtype).masked_fill(future, 0.0) * scale
