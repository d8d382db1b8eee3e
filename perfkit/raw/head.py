"""The head of a step by hand with its loss, by chunks of rows: the logits never are whole in memory.

Legend: N rows, C channels, V vocabulary, Vp the same padded.
"""

from __future__ import annotations

import torch
from torch import Tensor

from perfkit.raw.arena import Arena
from perfkit.raw.calls import Kernels, at


class ChunkedHead:
    """From y (N, C), what enters the head of `weight` (Vp, C), to the loss; back to dy (N, C) and `gradient` (Vp, C).

    The loss makes the slopes of both where their gradients go, and the backward scales them there. Only where several
    batches are `added` up does the weight's slope have memory of its own.
    """

    def __init__(
        self, call: Kernels, y: Tensor, dy: Tensor, weight: Tensor, gradient: Tensor, vocabulary: int, added: bool
    ) -> None:
        self.call = call
        self.y, self.dy, self.weight, self.gradient = y, dy, weight, gradient
        self.vocabulary = vocabulary
        self.slope = torch.empty_like(gradient) if added else gradient
        numbers: dict[str, tuple[int, ...]] = {"loss": (), "counted": (), "scale": ()}
        self.numbers = Arena(numbers, torch.float32, weight.device)

    def loss(self, targets: Tensor, ignored: int, scale: float) -> Tensor:
        """Mean cross entropy over the targets (N) that count; `scale` is what its gradient will be multiplied with."""
        loss, counted = self.numbers["loss"], self.numbers["counted"]
        self.numbers["scale"].fill_(scale)
        arguments = self.y, self.weight, targets, self.vocabulary, ignored
        self.call("linear_cross_entropy_forward", *arguments, out=[loss, self.dy, self.slope, counted])
        return loss.clone()

    def backward(self, add: bool) -> None:
        """The gradients, of the weight added to what there is with `add`."""
        arguments = self.numbers["scale"], self.dy, self.slope, self.numbers["counted"]
        out, added = [self.dy, self.gradient], ["dweight"] if add else []
        with at("loss"):
            self.call("linear_cross_entropy_backward", *arguments, out=out, add=added)
