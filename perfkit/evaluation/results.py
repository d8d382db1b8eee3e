"""The records of an evaluation. Losses are in nats a token."""

from __future__ import annotations

import msgspec

from perfkit.statistics import Estimate


class MeanLoss(msgspec.Struct, kw_only=True):
    """The mean loss of all tokens, and how far it lies above the first backend's on the same sequences.

    Intervals are the bootstrap's over sequences; `above` is None of the first backend itself.
    """

    tokens: int
    mean: Estimate
    above: Estimate | None = None


class Accuracy(msgspec.Struct, kw_only=True):
    """The number of right answers: by the mean loss of an ending's tokens (`right`, normalised by length),
    and by their sum (`right_by_sum`). `differs` counts answers that are not the first backend's."""

    questions: int
    right: int
    right_by_sum: int
    share: Estimate
    differs: int | None = None


class Evaluated(msgspec.Struct, kw_only=True):
    """One backend: its loss or its accuracy, or why it has none."""

    name: str
    loss: MeanLoss | None = None
    accuracy: Accuracy | None = None
    reason: str = ""


class Evaluation(msgspec.Struct, kw_only=True):
    """All backends on the same data."""

    title: str
    weights: str
    data: str
    device: str
    dtype: str
    batch_size: int
    sequence_length: int
    backends: list[Evaluated]

    @property
    def bad(self) -> bool:
        """Return whether a backend could not be evaluated."""
        return any(backend.reason for backend in self.backends)
