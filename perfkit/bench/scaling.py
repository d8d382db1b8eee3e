"""How cost grows with size: the exponent of time ∝ size^e, by least squares on logarithms, with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
