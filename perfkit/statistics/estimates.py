"""Estimates with intervals: the median and mean of samples, the ratio of two medians, and shares.

Step times are skewed and have outliers, so the centre is the median and its 95 % interval comes from the bootstrap: the
samples are drawn with replacement many times, and the middle 95 % of the medians of those draws is the interval
(Efron's percentile method). With fewer than `SMALL` samples no resampling can say more than the samples themselves:
the interval is then their range, and `method` says so.

Everything is seeded: the same samples give the same interval. Only numpy is needed. How cost grows with size is an
exponent, by least squares on logarithms, with the regression's interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

SMALL = 5  # the range of five samples covers the median with probability 1 − 2·(1/2)⁵ = 94 %
LEVEL = 0.95
DRAWS = 10_000
SEED = 20_240_501

BOOTSTRAP, RANGE, WILSON = "bootstrap", "range", "Wilson"

_NORMAL = 1.959964  # the normal distribution's 97.5 % point

_BLOCK = 2_000_000  # elements drawn at once, which bounds memory
_WORK = 40_000_000  # elements drawn in all, which bounds time for long sample lists
_LEAST_DRAWS = 1_000


class Estimate(msgspec.Struct, frozen=True):
    """A value, its 95 % interval [low, high], and the number of samples (of the smaller group, for a ratio).

    `method` is "bootstrap", or "range" when there were fewer than `SMALL` samples and the interval is only their range;
    of a share "Wilson".
    """

    value: float
    low: float
    high: float
    n: int
    method: str = BOOTSTRAP


def median(samples: Sequence[float]) -> Estimate:
    """The median of `samples` (any unit) with its interval. Raises `ValueError` for no samples or one not finite."""
    values = clean(samples)
    centre = float(np.median(values))
    if len(values) < SMALL:
        return Estimate(centre, float(values.min()), float(values.max()), len(values), RANGE)
    low, high = _middle(_resampled(np.median, values, np.random.default_rng(SEED)))
    return Estimate(centre, low, high, len(values))


def mean(samples: Sequence[float]) -> Estimate:
    """The mean of `samples` (any unit) with its interval. Raises `ValueError` for no samples or one not finite."""
    values = clean(samples)
    centre = float(values.mean())
    if len(values) < SMALL:
        return Estimate(centre, float(values.min()), float(values.max()), len(values), RANGE)
    low, high = _middle(_resampled(np.mean, values, np.random.default_rng(SEED)))
    return Estimate(centre, low, high, len(values))


def share(count: int, n: int) -> Estimate:
    """`count` of `n` as a share with Wilson's interval (1927). Raises `ValueError` unless 0 ≤ count ≤ n and n ≥ 1."""
    if not 0 <= count <= n or n < 1:
        raise ValueError("a share is of something: 0 ≤ count ≤ n, n ≥ 1")
    p, z = count / n, _NORMAL
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Estimate(p, max(centre - half, 0.0), min(centre + half, 1.0), n, WILSON)


def ratio_of_medians(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """Median of `numerator` over median of `denominator`, from independent samples: a speed-up is (before, after).

    Both groups are resampled for every ratio. Raises `ValueError` for no samples, one not finite, or a denominator
    that is not positive throughout.
    """
    upper, lower = clean(numerator), clean(denominator)
    if (lower <= 0).any():
        raise ValueError("a ratio needs a denominator of positive samples")
    centre = float(np.median(upper) / np.median(lower))
    n = min(len(upper), len(lower))
    if n < SMALL:
        corners = [a / b for a in (upper.min(), upper.max()) for b in (lower.min(), lower.max())]
        return Estimate(centre, float(min(corners)), float(max(corners)), n, RANGE)
    random = np.random.default_rng(SEED)
    draws = min(_draws(len(upper)), _draws(len(lower)))
    low, high = _middle(_resampled(np.median, upper, random, draws) / _resampled(np.median, lower, random, draws))
    return Estimate(centre, low, high, n)


def _resampled(
    centre: Callable[..., np.ndarray], values: np.ndarray, random: np.random.Generator, draws: int | None = None
) -> np.ndarray:
    """The `centre` of resamples of `values`, shape (draws,), drawn in blocks so that memory stays bounded."""
    n = len(values)
    draws = draws or _draws(n)
    rows = max(1, _BLOCK // n)
    blocks = [min(rows, draws - start) for start in range(0, draws, rows)]
    return np.concatenate([centre(values[random.integers(0, n, (block, n))], axis=1) for block in blocks])


def _draws(n: int) -> int:
    return max(_LEAST_DRAWS, min(DRAWS, _WORK // n))


def _middle(values: np.ndarray) -> tuple[float, float]:
    """The interval that holds the middle `LEVEL` of `values`."""
    tail = (1 - LEVEL) / 2 * 100
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def clean(samples: Sequence[float]) -> np.ndarray:
    """The samples as a flat array of reals. Raises `ValueError` for none, or one that is not finite."""
    values = np.asarray(samples, dtype=float).ravel()
    if values.size == 0:
        raise ValueError("no samples were given")
    if not np.isfinite(values).all():
        raise ValueError("a sample is not a finite number")
    return values


# Student's t at 97.5 % by degrees of freedom, at the numbers that are tabulated.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179,
      15: 2.131, 20: 2.086, 30: 2.042, 60: 2.000}  # fmt: skip


def exponent(sizes: Sequence[float], times: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The exponent and its 95 % interval (None with two sizes, which fit any line).

    The interval is the regression's own: it says how well one power law describes the points, and is wide where the
    cost turns from one regime (overhead, cache) into another. Raises `ValueError` for fewer than two distinct sizes,
    or a size or time that is not positive.
    """
    if min(*sizes, *times) <= 0 or len(set(sizes)) < 2:
        raise ValueError("a power law needs two sizes, and positive times")
    x, y = [math.log(s) for s in sizes], [math.log(t) for t in times]
    n, mean_x, mean_y = len(x), sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    freedom = n - 2
    if freedom < 1:
        return slope, None, None
    rest = sum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    half = _student(freedom) * math.sqrt(rest / freedom / spread)
    return slope, slope - half, slope + half


def _student(freedom: int) -> float:
    """t at 97.5 %: of the nearest smaller tabulated number of degrees of freedom, so never too small an interval."""
    return _T[max(known for known in _T if known <= freedom)]
