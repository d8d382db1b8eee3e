"""Two groups of measurements, or pairs, compared by ranks: exact p values and the intervals that belong to them.

Nothing is assumed of the distribution of the noise but what the way of measuring makes sure of:

    paired    (Wilcoxon 1945, signed ranks)  each difference is as likely positive as negative without an effect
    groups    (Mann and Whitney 1947)        any order of the two groups' values is as likely without an effect

The estimates are those of Hodges and Lehmann (1963): the median of all pairwise means, or of all pairwise differences.
The interval holds every shift that the test does not reject at `1 − LEVEL`. With so few values that no order of them
could be significant, nothing is known: the interval is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

import msgspec
import numpy as np

from perfkit.statistics.estimates import LEVEL, clean

SIGNED_RANK, RANK_SUM = "signed ranks", "rank sum"
_EXACT = 60  # values a test: beyond, the normal approximation is good to four digits
_NORMAL = NormalDist()


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """The shift of the second group against the first, in the unit of the values: estimate, interval, p value.

    `n` is the number of pairs, or of values of the smaller group; an interval of ±∞ says that there were too few.
    `level` is the interval's.
    """

    value: float
    low: float
    high: float
    p: float
    n: int
    method: str
    level: float = LEVEL

    @property
    def half(self) -> float:
        """Half the interval's width."""
        return (self.high - self.low) / 2

    @property
    def detectable(self) -> float:
        """The least true shift that this spread would show four times out of five.

        A shift is shown when it is farther from zero than half the interval, which of 95 % is 1.96 standard errors
        where the estimate is normal; so that this happens with probability 0.8 it must be 0.84 standard errors farther
        out.
        """
        return self.half * (1 + _NORMAL.inv_cdf(0.8) / _NORMAL.inv_cdf((1 + self.level) / 2))


def paired(differences: Sequence[float], level: float = LEVEL) -> Shift:
    """The centre of `differences` (second − first, one a pair) by signed ranks, with its interval at `level`.

    Raises `ValueError` for none, or one that is not finite. Six pairs are the fewest that can show anything.
    """
    values = clean(differences)
    n = len(values)
    row, column = np.triu_indices(n)
    means = np.sort((values[row] + values[column]) / 2)
    positive = float((means > 0).sum() + (means == 0).sum() / 2)  # the sum of the ranks of positive differences
    return _shift(means, positive, _signed_rank_counts, (n,), n, SIGNED_RANK, level)


def groups(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> Shift:
    """Return the shift of `second` against `first`, by the rank sum, with the interval at `level`.

    Raises `ValueError` for an empty group or a value that is not finite. Four values each are the fewest that can show
    anything.
    """
    a, b = clean(first), clean(second)
    between = np.sort(np.subtract.outer(b, a).ravel())
    above = float((between > 0).sum() + (between == 0).sum() / 2)
    return _shift(between, above, _rank_sum_counts, (len(a), len(b)), min(len(a), len(b)), RANK_SUM, level)


def signed_rank_p(above: np.ndarray, n: int) -> np.ndarray:
    """The two-sided p value of each sum of positive ranks of `n` differences, in the shape of `above`."""
    total = n * (n + 1) // 2
    below = _below(_signed_rank_counts, (n,), total)
    nearer = np.minimum(above, total - above)
    return np.minimum(1.0, 2 * below[np.floor(nearer + 1e-9).astype(np.int64)])


def _shift(
    ordered: np.ndarray, statistic: float, counts: object, sizes: tuple[int, ...], n: int, method: str, level: float
) -> Shift:
    """Test and interval from the sorted pairwise values and the statistic's distribution without an effect."""
    total = len(ordered)
    below = _below(counts, sizes, total)
    p = min(1.0, 2 * float(below[math.floor(min(statistic, total - statistic) + 1e-9)]))
    tail = int(np.searchsorted(below, (1 - level) / 2 * (1 + 1e-12), side="right"))  # values of the statistic rejected
    low, high = (float(ordered[tail - 1]), float(ordered[total - tail])) if tail else (-math.inf, math.inf)
    return Shift(value=float(np.median(ordered)), low=low, high=high, p=p, n=n, method=method, level=level)


def _below(counts: object, sizes: tuple[int, ...], total: int) -> np.ndarray:
    """P(statistic ≤ k) for k from 0 to `total`, without an effect."""
    if sum(sizes) <= _EXACT:
        return counts(*sizes)  # type: ignore[operator,no-any-return]
    mean = total / 2
    variance = (
        sizes[0] * (sizes[0] + 1) * (2 * sizes[0] + 1) / 24
        if len(sizes) == 1
        else sizes[0] * sizes[1] * (sum(sizes) + 1) / 12
    )
    return np.array([_normal((k + 0.5 - mean) / math.sqrt(variance)) for k in range(total + 1)])


def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


@cache
def _signed_rank_counts(n: int) -> np.ndarray:
    """Cumulative distribution of the sum of positive ranks: every rank is in it or not, each with probability ½."""
    ways = [1]
    for rank in range(1, n + 1):
        shifted = [0] * rank + ways
        ways = [a + b for a, b in zip(ways + [0] * rank, shifted, strict=True)]
    return _cumulative(ways)


@cache
def _rank_sum_counts(n: int, m: int) -> np.ndarray:
    """Cumulative distribution of the number of pairs with the second above: the Gaussian binomial coefficient."""
    ways = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for k in range(n * m, m + i - 1, -1):  # times (1 − q^(m+i))
            ways[k] -= ways[k - m - i]
        for k in range(i, n * m + 1):  # over (1 − q^i)
            ways[k] += ways[k - i]
    return _cumulative(ways)


def _cumulative(ways: Sequence[int]) -> np.ndarray:
    total, so_far, made = sum(ways), 0, []
    for count in ways:
        so_far += count
        made.append(so_far / total)
    return np.array(made)
