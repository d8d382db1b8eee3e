"""Many tests at once: p values raised so that together they are wrong no more often than one alone.

`holm` knows nothing of how the tests depend on each other, and takes the worst case. `together` knows: the differences
of all metrics come from the same launches, and in a launch of two equal sides they all change their signs if the sides
change places. So the signs are exchanged launch by launch for all metrics at once, and the smallest p value of each
exchange is what the smallest of equal sides would be (Westfall and Young 1993, step-down).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfkit.statistics import ranks

_EVERY = 15  # differences: beyond, exchanges of signs are drawn at random, as many as these have
_SEED = 20_240_501


def holm(p: Sequence[float]) -> list[float]:
    """The p values by Holm's step-down method (1979), in the order given: the chance that any true null is rejected
    stays below the level, however the tests depend on each other.

    Raises `ValueError` for a p value outside 0 to 1.
    """
    if any(not 0 <= value <= 1 for value in p):
        raise ValueError("a p value lies between 0 and 1")
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, p[index] * (len(p) - rank)))
        adjusted[index] = largest
    return adjusted


def together(differences: Sequence[Sequence[float]]) -> list[float]:
    """The p values of signed ranks of several metrics, corrected for testing all: one line of differences a metric, one
    column a launch.

    The chance that any metric whose sides are equal is rejected stays below the level. Raises `ValueError` for lines of
    unequal length.
    """
    values = np.array(differences, dtype=float)
    if values.ndim != 2 or not values.size:
        raise ValueError("each metric needs a difference for every launch")
    n = values.shape[1]
    rank = np.stack([_ranks(np.abs(line)) for line in values])
    above = (values > 0) + (values == 0) / 2  # 1, or 0 for one below; the sum of the ranks above is the statistic
    whole = (rank * above).sum(axis=1)
    observed = ranks.signed_rank_p(whole, n)
    order = np.argsort(observed, kind="stable")
    turned = rank * (1 - 2 * above)  # what the sum gains by an exchange of the sides
    exchanged = ranks.signed_rank_p(whole[order] + _exchanges(n) @ turned[order].T, n)  # one line an exchange
    smallest = np.minimum.accumulate(exchanged[:, ::-1], axis=1)[:, ::-1]  # of a metric and those after it
    raised = (smallest <= observed[order] * (1 + 1e-9)).mean(axis=0)
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate(np.maximum(raised, observed[order]))
    return [float(p) for p in adjusted]


def _ranks(sizes: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal sizes share theirs."""
    _, group, count = np.unique(sizes, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[group.reshape(-1)]


def _exchanges(n: int) -> np.ndarray:
    """Return in which launches the sides change places (0, 1), one line an exchange, without the mirror of each."""
    if n <= _EVERY + 1:
        numbers = np.arange(2 ** (n - 1))
        return (numbers[:, None] >> np.arange(n) & 1).astype(float)
    drawn = np.random.default_rng(_SEED).integers(0, 2, (2**_EVERY, n)).astype(float)
    drawn[0] = 0.0  # that of no change, as it was measured, is one of those possible
    return drawn
