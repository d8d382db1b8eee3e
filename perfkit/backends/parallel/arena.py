"""Several ranks share a step by hand, whose parameters and gradients are in one arena each (`perfkit.handwritten`).

The arena's parts are the buckets: a part is exchanged as soon as backward has finished it, while backward goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.backends.parallel.ranks import all_gather, reduce_scatter

if TYPE_CHECKING:
    import torch

    from perfkit.handwritten import RawStep


class Sharing:
    """One process alone: nothing is exchanged. The loss is scaled by 1 / `ranks`, so that gradients only add up."""

    def __init__(self, step: RawStep) -> None:
        self._step = step
        self._works: list[Any] = []
        self.ranks = 1

    def parts(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Parameters and gradients (N) that this rank's optimizer updates."""
        assert self._step.gradients is not None
        return [(self._step.parameters.flat, self._step.gradients.flat)]

    def done(self, part: int) -> None:
        """Exchange the gradients of a part, which backward has finished."""

    def wait(self) -> None:
        """Wait for what was begun."""
        for work in self._works:
            work.wait()
        self._works.clear()

    def updated(self) -> None:
        """Exchange the parameters that the optimizers have updated."""

    def complete(self) -> None:
        """Put the gradients together where a rank has a part of them; every rank must call it alike."""


class _Shared(Sharing):
    def __init__(self, step: RawStep) -> None:
        from torch import distributed

        super().__init__(step)
        self.rank, self.ranks = distributed.get_rank(), distributed.get_world_size()
        assert step.gradients is not None
        self._gradients, self._parameters = step.gradients, step.parameters


class Reduced(_Shared):
    """ddp: every rank has all gradients, added up."""

    def done(self, part: int) -> None:
        """Sum the gradients of `part` over the ranks, while the backward pass goes on."""
        from torch import distributed

        whole = self._gradients.flat[self._gradients.parts[part]]
        self._works.append(distributed.all_reduce(whole, async_op=True))


class Scattered(_Shared):
    """zero1: of every part each rank gets its share of the gradients, added up, updates it, and gathers the others'.

    Shares lie where they belong in the whole: nothing is copied.
    """

    def parts(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """This rank's share of each part: parameters and their gradients."""
        places = [self._own(part) for part in self._gradients.parts]
        return [(self._parameters.flat[own], self._gradients.flat[own]) for own in places]

    def done(self, part: int) -> None:
        """Give each rank the sum of its share of the gradients of `part`, while the backward pass goes on."""
        place = self._gradients.parts[part]
        self._works.append(reduce_scatter(self._gradients.flat[self._own(place)], self._gradients.flat[place]))

    def updated(self) -> None:
        """Gather the parameters that every rank has updated its share of."""
        for place in self._parameters.parts:
            self._gather(self._parameters.flat, place)
        self.wait()

    def complete(self) -> None:
        """Gather the gradients, so that they are whole on every rank."""
        for place in self._gradients.parts:
            self._gather(self._gradients.flat, place)
        self.wait()

    def _gather(self, flat: torch.Tensor, place: slice) -> None:
        self._works.append(all_gather(flat[place], flat[self._own(place)]))

    def _own(self, place: slice) -> slice:
        each = (place.stop - place.start) // self.ranks
        return slice(place.start + self.rank * each, place.start + (self.rank + 1) * each)


SHARINGS: dict[str, type[Sharing]] = {"": Sharing, "ddp": Reduced, "zero1": Scattered}
