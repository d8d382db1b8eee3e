"""Two series that were recorded in turns, a part of the one and then a part of the other: by how much they differ.

A machine changes its pace within a recording. The median of a whole series then lies with whichever pace had most of
its steps, and may lie with another one in the second series; parts that were recorded next to each other met the same.
"""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np

PARTS = 24  # of a series at most: `perfkit compare` records the profiled steps of a side in as many


def log_ratio(first: np.ndarray, second: np.ndarray) -> float | None:
    """log(second / first): the median over the pairs of parts of the log ratio of their medians.

    Each series is cut into as many parts of nearly equal length, in order; where the parts were recorded in proportion,
    so that the series begin and end together, the parts of a pair lie next to each other in time. Exchanging the series
    changes the sign alone. None where a series is empty, or a part's median is not positive and finite.
    """
    count = min(PARTS, len(first), len(second))
    if not count:
        return None
    medians = [_medians(first, count), _medians(second, count)]
    if not all(0 < value < math.inf for value in itertools.chain(*medians)):
        return None
    return statistics.median([math.log(after) - math.log(before) for before, after in zip(*medians, strict=True)])


def _medians(series: np.ndarray, count: int) -> list[float]:
    edges = [len(series) * part // count for part in range(count + 1)]
    return [float(np.median(series[a:b])) for a, b in itertools.pairwise(edges)]
