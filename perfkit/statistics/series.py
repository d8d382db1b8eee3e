"""Properties of a series of measurements: the end of its warm-up, drift, outliers, and the steps of a history."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from perfkit.statistics import ranks
from perfkit.statistics.estimates import clean

_SIGMA = 1.4826  # a normal distribution's standard deviation over its median absolute deviation
OUTLIER = 5.0  # robust standard deviations above the median
LEAST = 0.05  # of the median: less than this above it is neither outlier nor warm-up
STEADY = 5  # steps in a row that must lie among the later ones
_LEVEL = 0.01  # of a drift's and a step's test
_LEAST_STEP = 0.02  # of the level before a step


def warmup_end(times: Sequence[float]) -> int | None:
    """The index of the first steady step of `times`, in order; None where they do not become steady.

    Steady are the steps from the first on that, itself and in the median with the `STEADY` − 1 after it, is not higher
    than the last half's median by more than its spread (three robust standard deviations, at least `LEAST`). At least
    half of the series must be steady, or nobody could say what it settled on; a series that still falls in its last
    half is not steady, and of fewer than four steps nothing is known.
    """
    values = np.asarray(times, dtype=float)
    n = len(values)
    if n < 4:
        return None
    late = values[n // 2 :]
    centre = float(np.median(late))
    tolerance = max(3 * _spread(late), LEAST * centre)
    quarter = len(late) // 2
    # A series that falls has a wide spread, and small differences from step to step.
    fall = float(np.median(late[:quarter]) - np.median(late[quarter:]))
    if fall > max(3 * _spread(np.diff(late)), LEAST * centre):
        return None
    limit = centre + tolerance
    for start in range(n // 2 + 1):
        if values[start] <= limit and float(np.median(values[start : start + STEADY])) <= limit:
            return start
    return None


def outliers(values: Sequence[float]) -> list[int]:
    """Indices of values more than `OUTLIER` robust standard deviations, and `LEAST`, above the median."""
    known = np.asarray(values, dtype=float)
    if len(known) < 5:
        return []
    centre = float(np.median(known))
    limit = centre + max(OUTLIER * _spread(known), LEAST * centre)
    return [int(i) for i in np.nonzero(known > limit)[0]]


def drift(values: Sequence[float]) -> float | None:
    """The change from the first third of `values` to the last as a share, where the series has a trend; else None.

    A trend: Kendall's rank correlation with time (Mann 1945) is significant at 1 %.
    """
    known = clean(values)
    n = len(known)
    if n < 6:
        return None
    score = float(np.sign(np.subtract.outer(known, known))[np.tril_indices(n, -1)].sum())
    z = (abs(score) - 1) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    if math.erfc(z / math.sqrt(2)) > _LEVEL:
        return None
    third = n // 3
    return float(np.median(known[-third:]) / np.median(known[:third]) - 1)


def change_points(values: Sequence[float]) -> list[int]:
    """Indices at which a history makes a step: the first value of each new level.

    The series is split where the rank sum differs most between before and after, if the test there, corrected for the
    number of places tried, is significant at 5 %, and the medians differ by `_LEAST_STEP`; then each part again. Three
    values are the fewest on a side.
    """
    known = clean(values)

    def split(start: int, end: int) -> list[int]:
        places = range(start + 3, end - 2)
        tested = [(ranks.groups(list(known[start:i]), list(known[i:end])).p, i) for i in places]
        if not tested:
            return []
        p, at = min(tested)
        before, after = float(np.median(known[start:at])), float(np.median(known[at:end]))
        if p * len(tested) > 0.05 or abs(after / before - 1) < _LEAST_STEP:
            return []
        return [*split(start, at), at, *split(at, end)]

    return split(0, len(known))


def _spread(values: np.ndarray) -> float:
    """A robust standard deviation."""
    return _SIGMA * float(np.median(np.abs(values - np.median(values))))
