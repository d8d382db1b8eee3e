"""A training step written by hand: parameters and gradients in arenas, which several ranks may share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from perfkit.handwritten.arena import Arena
from perfkit.handwritten.calls import Kernels
from perfkit.handwritten.products import Products
from perfkit.run_folder import Settings

BUCKET_BYTES = 25 * 2**20  # of gradients that ranks exchange at once: enough for the network, early enough to overlap


class RawStep(ABC):
    """A model's forward and backward by hand, over the parameters of `model`.

    The parameters move into one arena (`model` keeps working on them there), their gradients into another with the
    same names and places. `rows` gives parameters more rows there than they have; the others stay 0, and so must their
    gradients.

    Several ranks exchange gradients while backward goes on: it says by `final` of which of its `units` they are done.
    """

    # True where it follows `settings.recompute`: keeps less for the backward, which computes it again.
    recomputes = False
    # True where CUDA graphs may capture `forward` and `backward`: for batches of one shape they launch the same
    # kernels on the same memory with the same numbers, and wait for nothing. `loss` may wait.
    captures = False
    # True where `begin` does something.
    prepares = False
    # Told of each part of the gradients' arena (its number in `gradients.parts`) that is done; None: nobody asks.
    listener: Callable[[int], None] | None = None

    def __init__(self, model: torch.nn.Module, settings: Settings, rows: Mapping[str, int] | None = None) -> None:
        named = dict(model.named_parameters())  # a shared parameter once
        first = next(iter(named.values()))
        more = rows or {}
        shapes = {name: (more.get(name, p.shape[0]), *p.shape[1:]) for name, p in named.items()}
        self._rows = {name: p.shape[0] for name, p in named.items()}
        self.dtype, self.device = first.dtype, first.device
        buckets = _buckets(self.units(list(named)), {n: math.prod(s) * first.itemsize for n, s in shapes.items()})
        shapes = {name: shapes[name] for bucket in reversed(buckets) for unit in reversed(bucket) for name in unit}
        begins = {bucket[-1][0] for bucket in buckets}
        self._left = [len(bucket) for bucket in reversed(buckets)]  # of each part, how many units are to come
        self._missing = list(self._left)
        self._part_of = [part for part, count in reversed(list(enumerate(self._left))) for _ in range(count)]
        self.parameters = Arena(shapes, self.dtype, self.device, begins, settings.ranks)
        with torch.no_grad():
            for name, parameter in named.items():
                place = self.parameters[name][: self._rows[name]]
                place.copy_(parameter)
                parameter.data = place
        training = settings.training
        self.gradients = Arena(shapes, self.dtype, self.device, begins, settings.ranks) if training else None
        self.call = Kernels()
        self.products = Products(self.call, self.device)
        self.notes: list[str] = []  # what a reader of the report should know of the step

    def units(self, names: list[str]) -> list[list[str]]:
        """The parameters' `names` in the order in which backward finishes their gradients, some at a time."""
        return [names]

    def final(self, unit: int) -> None:
        """Say that the gradients of this unit will change no more in this step."""
        if self.listener is None:
            return
        part = self._part_of[unit]
        self._missing[part] -= 1
        if not self._missing[part]:
            self._missing[part] = self._left[part]
            self.listener(part)

    def named_gradients(self) -> dict[str, Tensor]:
        """Gradients by the names of the parameters, in the parameters' shapes; none in inference."""
        held = self.gradients.tensors if self.gradients else {}
        return {name: gradient[: self._rows[name]] for name, gradient in held.items()}

    def begin(self) -> None:  # noqa: B027  # most have nothing to do
        """Prepare what is the same for all batches of a step, of the parameters as they are now."""

    @abstractmethod
    def forward(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Run the forward of one batch up to the outputs, and return these: a tensor of the arena."""

    @abstractmethod
    def loss(self, batch: tuple[Tensor, ...], scale: float) -> Tensor:
        """The loss () of the batch, after `forward`, and the gradient of `scale` · loss for the outputs, kept.

        The outputs may be overwritten.
        """

    @abstractmethod
    def backward(self, batch: tuple[Tensor, ...], add: bool) -> None:
        """Compute the gradients of all parameters, after `loss`; with `add`, add them to those there are.

        Calls `final` with 0, 1, … as those of each of `units` are done.
        """


def _buckets(units: Sequence[list[str]], size: Mapping[str, int]) -> list[list[list[str]]]:
    """Units, in their order, in groups of at least `BUCKET_BYTES` except for the last."""
    buckets: list[list[list[str]]] = []
    filled = 0
    for unit in units:
        if not buckets or filled >= BUCKET_BYTES:
            buckets.append([])
            filled = 0
        buckets[-1].append(unit)
        filled += sum(size[name] for name in unit)
    return buckets
