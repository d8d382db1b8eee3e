"""The head of a step by hand with its loss: whole, or by chunks of rows, where the logits never are whole in memory.

Legend: N rows, C channels, V vocabulary, Vp the same padded.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from perfkit.handwritten.arena import Arena
from perfkit.handwritten.calls import Kernels, at
from perfkit.handwritten.products import Products

IGNORED = -1  # a target that does not count


@dataclass
class LossHead(ABC):
    """From y (N, C), what enters the head `name` of `weight` (Vp, C), to the loss; back to dy (N, C) and `gradient`.

    dy and `gradient` (Vp, C) are None in a step made for inference.
    """

    call: Kernels
    products: Products
    name: str
    y: Tensor
    dy: Tensor | None
    weight: Tensor
    gradient: Tensor | None
    vocabulary: int

    @abstractmethod
    def forward(self) -> Tensor:
        """Return logits (N, V), or y where they stay inside the loss."""

    @abstractmethod
    def loss(self, targets: Tensor, scale: float) -> Tensor:
        """Mean cross entropy () over the targets (N) that count, and what the backward of `scale` · loss needs."""

    @abstractmethod
    def backward(self, add: bool) -> None:
        """dy, and the weight's gradient, added to what there is with `add`."""


@dataclass
class WholeHead(LossHead):
    """The logits (N, Vp) are kept, and become their gradient."""

    logits: Tensor
    losses: Tensor  # (N), fp32

    def forward(self) -> Tensor:
        """The logits (N, V) of all rows."""
        with at(self.name):
            self.products.forward(self.y, self.weight, None, self.logits)
        return self.logits[:, : self.vocabulary]

    def loss(self, targets: Tensor, scale: float) -> Tensor:
        """Mean loss of the counted targets, NaN where none counts; the logits become their gradient, times `scale`."""
        counted = int((targets != IGNORED).sum())
        upstream = scale / counted if counted else math.nan
        self.call("classifier", self.logits, targets, upstream, self.vocabulary, IGNORED, out=[self.losses])
        return self.losses.sum() / counted if counted else self.losses.new_tensor(math.nan)

    def backward(self, add: bool) -> None:
        """From the logits' gradient those of y and of the weight, which is added to with `add`."""
        assert self.dy is not None and self.gradient is not None
        with at(self.name):
            self.products.backward_input(self.logits, self.weight, self.dy)
            self.products.backward_weight(self.logits, self.y, self.gradient, add)


class ChunkedHead(LossHead):
    """The loss makes the slopes of y and the weight where their gradients go, and the backward scales them there.

    Only where gradients of several batches are added up (`accumulates`) has the weight's slope memory of its own.
    """

    def __init__(self, *parts: object, accumulates: bool) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]  # those of Head
        assert self.dy is not None and self.gradient is not None
        self.slope = torch.empty_like(self.gradient) if accumulates else self.gradient
        numbers: dict[str, tuple[int, ...]] = {"loss": (), "counted": (), "scale": ()}
        self.numbers = Arena(numbers, torch.float32, self.weight.device)

    def forward(self) -> Tensor:
        """y itself: the logits are never whole."""
        return self.y

    def loss(self, targets: Tensor, scale: float) -> Tensor:
        """The mean loss by chunks of rows, with what backward needs of each."""
        assert self.dy is not None
        loss, counted = self.numbers["loss"], self.numbers["counted"]
        self.numbers["scale"].fill_(scale)
        arguments = self.y, self.weight, targets, self.vocabulary, IGNORED
        self.call("linear_cross_entropy_forward", *arguments, out=[loss, self.dy, self.slope, counted])
        return loss.clone()

    def backward(self, add: bool) -> None:
        """The gradients of y and of the weight, which is added to with `add`."""
        assert self.dy is not None and self.gradient is not None
        arguments = self.numbers["scale"], self.dy, self.slope, self.numbers["counted"]
        out, added = [self.dy, self.gradient], ["dweight"] if add else []
        with at("loss"):
            self.call("linear_cross_entropy_backward", *arguments, out=out, add=added)
