"""Launch order of a GPU's activities, which begin in another order where there are several streams."""

from __future__ import annotations

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.numbers import unique


def launch_order(launched: Integers, known: Booleans, queue: Integers) -> Integers:
    """Return the place of each activity in launch order, from 0; activities come by their start.

    `launched` is when the call that launched each of them began, `known` where there is one, `queue` the number of its
    stream. What one call launched (a CUDA graph) keeps the order of its starts. An activity whose call is not in the
    capture comes after the one before it in its stream.
    """
    rows = np.arange(len(launched))
    before = np.where(known, rows, -1)
    for stream in unique(queue[~known]).tolist():
        own = np.flatnonzero(queue == stream)
        before[own] = np.maximum.accumulate(before[own])
    when = np.where(before >= 0, launched[np.maximum(before, 0)], np.iinfo(np.int64).min)
    place = np.empty(len(rows), np.int64)
    place[np.lexsort((rows, when))] = rows
    return place
