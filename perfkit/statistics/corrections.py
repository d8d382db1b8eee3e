"""Many tests at once: p values raised so that all of them together are wrong no oftener than one alone would be."""

from __future__ import annotations

from collections.abc import Sequence


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
