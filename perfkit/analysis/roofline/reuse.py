"""How long ago the bytes that a row reads were last used: that decides which cache can still hold them.

The distance of a use are the distinct bytes of the calls since the last use of the same tensor, and its own (the
stack distance of Mattson et al., "Evaluation techniques for storage hierarchies", 1970). A loop over a working set, by
which bandwidth is measured, uses each byte at the distance of that working set.

A table names no tensors. It has sizes of arguments, modules, the order of calls, and the bytes that each wrote. So a
tensor is here an argument of one size in one module, and no more counts than is certain:

    kept        an argument larger than all that any call since its last use wrote: none of them has made it. These are
                weights, and caches of keys and values. How long ago anything else was used is unknown
    distance    the kept tensors since then, each once. Activations count nothing: it is rather too short

A tensor that several modules share counts once for each of them, and one that is made in parts looks kept. Steps
repeat: before the first row comes the last one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfkit.analysis import tensors
from perfkit.columns import factorize, plain
from perfkit.numbers import unique

if TYPE_CHECKING:
    import pandas as pd

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

SMALLEST = 64 * 1024  # bytes: the smallest working set that is measured; ceilings do not distinguish smaller distances
FARTHEST = 4096  # tensors: a distance is summed over this many at most, and is then too short


@dataclass(frozen=True)
class Uses:
    """Kept tensors that rows read: the row's place in its frame, bytes that it reads of one, and the distance."""

    row: Integers
    size: Reals
    distance: Reals


@dataclass(frozen=True)
class _Touches:
    """Arguments of the rows of one device, in the order of the calls; `row` counts in that order, `size` is in bytes,
    `read` how many of them the row reads at most (0 where unknown). Equal `key`s are the same tensor."""

    row: Integers
    key: Integers
    size: Reals
    read: Reals

    def twice(self, rows: int) -> _Touches:
        """Return the touches of two rounds of these rows, one after the other."""
        row = np.concatenate([self.row, self.row + rows])
        return _Touches(row, np.tile(self.key, 2), np.tile(self.size, 2), np.tile(self.read, 2))

    def last(self) -> Integers:
        """Return the place of the touch before each, of the same tensor; −1 for a first one."""
        order = np.argsort(self.key, kind="stable")
        again = self.key[order][1:] == self.key[order][:-1]
        found = np.full(len(order), -1, np.int64)
        found[order[1:]] = np.where(again, order[:-1], -1)
        return found


def uses(frame: pd.DataFrame, wanted: Booleans) -> Uses:
    """The kept tensors that the `wanted` rows of `frame` read, and how long ago each was last used."""
    found = [Uses(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))]
    order = np.argsort(frame["order"].to_numpy(np.int64), kind="stable")
    device = frame["device"].factorize()[0][order]
    for rows in [order[device == one] for one in unique(device)]:
        one = _of_device(frame.iloc[rows], wanted[rows])
        found.append(Uses(rows[one.row], one.size, one.distance))
    return Uses(*(np.concatenate([getattr(one, name) for one in found]) for name in ("row", "size", "distance")))


def _of_device(frame: pd.DataFrame, wanted: Booleans) -> Uses:
    """The same of the rows of one device, in the order of their calls."""
    rows = len(frame)
    touches = _touches(frame).twice(rows)
    last, written = touches.last(), np.tile(_written(frame), 2)
    second = np.flatnonzero(touches.row >= rows)
    second = second[wanted[touches.row[second] - rows]]
    largest = _largest(written, touches.row[last[second]] + 1, touches.row[second])
    kept = touches.size[second] > largest
    at, largest = second[kept], largest[kept]
    begin = np.searchsorted(touches.row, touches.row[last[at]], side="right")
    end = np.searchsorted(touches.row, touches.row[at])
    begin = np.maximum(begin, end - FARTHEST)
    distance = touches.read[at].copy()
    for i, (first, stop) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        counts = (last[first:stop] < first) & (touches.size[first:stop] > largest[i])
        distance[i] += touches.read[first:stop][counts].sum()
    return Uses(touches.row[at] - rows, touches.read[at], distance)


def _touches(frame: pd.DataFrame) -> _Touches:
    """The arguments that each row touches; a row that is known to read nothing touches none."""
    code, texts = frame["shapes"].fillna("").factorize()
    each = [_arguments(text) for text in texts]
    read = frame["bytes_read"].to_numpy(float)
    count = np.where(read == 0, 0, np.array([len(one) for one in each], np.int64)[code])
    row = np.repeat(np.arange(len(frame)), count)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    begin = np.cumsum([0, *(len(one) for one in each)])
    argument = [pair for one in each for pair in one]
    tensor, kinds = factorize(argument)
    place = frame["module"].fillna("").factorize()[0]
    at = begin[code[row]] + nth
    size = np.array([size for size, _ in argument], float)[at]
    return _Touches(row, place[row] * len(kinds) + tensor[at], size, np.fmin(size, np.nan_to_num(read[row])))


def _arguments(text: str) -> list[tuple[int, int]]:
    """Return the bytes of each larger argument of a call, and its number among those of equal size."""
    seen: Counter[int] = Counter()
    found = []
    for size in tensors.sizes(text):
        if size >= SMALLEST:
            found.append((size, seen[size]))
            seen[size] += 1
    return found


def _written(frame: pd.DataFrame) -> Reals:
    """Bytes that each row writes; where that is unknown no more than its largest argument, else without a limit."""
    written = frame["bytes_written"].to_numpy(float)
    unknown = np.flatnonzero(~np.isfinite(written))
    texts = plain(frame["shapes"].fillna("").iloc[unknown])
    written = written.copy()
    written[unknown] = [max(tensors.sizes(text), default=np.inf) for text in texts]
    return written


def _largest(values: Reals, first: Integers, stop: Integers) -> Reals:
    """The largest of values[first:stop] of each pair, 0 of an empty one; by windows of 1, 2, 4, … values."""
    found, length = np.zeros(len(first)), stop - first
    window, width = values, 1
    while width <= length.max(initial=0):
        these = np.flatnonzero((length >= width) & (length < 2 * width))
        found[these] = np.maximum(window[first[these]], window[stop[these] - width])
        window = np.maximum(window[:-width], window[width:])
        width *= 2
    return found
