"""What the family replaces: PyTorch's own operators."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from perfkit.kernels.replaced import Call

aten = torch.ops.aten


def encoder_forward(idx: Tensor, wte: Tensor, wpe: Tensor) -> Call:
    """idx (B, T), wte (V, C), wpe (P, C): the sum of both embeddings, (B, T, C)."""
    return lambda: F.embedding(idx, wte) + wpe[: idx.shape[1]]


def encoder_backward(dx: Tensor, idx: Tensor, vocabulary: int, positions: int) -> Call:
    """The gradients of two embeddings."""
    places = torch.arange(idx.shape[1], device=idx.device).expand_as(idx)

    def call() -> Any:
        dwte = aten.embedding_dense_backward(dx, idx, vocabulary, -1, False)
        return dwte, aten.embedding_dense_backward(dx, places, positions, -1, False)

    return call


def embedding_forward(idx: Tensor, weight: Tensor) -> Call:
    """idx (…), weight (V, C): (…, C)."""
    return lambda: F.embedding(idx, weight)


def embedding_backward(dx: Tensor, idx: Tensor, vocabulary: int) -> Call:
    """dx (…, C), idx (…): the gradient of the weight, (V, C)."""
    return lambda: aten.embedding_dense_backward(dx, idx, vocabulary, -1, False)
