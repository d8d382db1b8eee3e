"""The time of the thread that runs the steps, cut into pieces of one source line each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.intervals import Union
from perfkit.readers.kineto.decode.events import HostEvents


@dataclass
class LineStretches:
    """Stretches of time that do not overlap, in order: start and end in ns, the `frame` (−1: unknown), and whether an
    operator ran (`working`), else Python between two of them."""

    start: Integers
    end: Integers
    frame: Integers
    working: Booleans

    @classmethod
    def of(cls, rows: list[tuple[int, int, int, bool]]) -> LineStretches:
        """Pieces from rows of their columns."""
        columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
        start, end, frame = (np.array(column, np.int64) for column in columns[:3])
        return cls(start, end, frame, np.array(columns[3], bool))

    def free_of(self, cover: Union) -> Integers:
        """The ns of each piece that `cover` leaves free."""
        return (self.end - self.start) - (cover.until(self.end) - cover.until(self.start))


def filled(pieces: list[tuple[int, int, int]], start: int, end: int) -> list[tuple[int, int, int]]:
    """The `pieces` of [start, end), in order, and what they leave free of it as pieces without a frame (−1)."""
    found: list[tuple[int, int, int]] = []
    at = start
    for piece in pieces:
        if piece[0] > at:
            found.append((at, piece[0], -1))
        found.append(piece)
        at = piece[1]
    return [*found, (at, end, -1)] if end > at else found


def own_times(host: HostEvents, chosen: Booleans, value: Integers, lane: int) -> list[tuple[int, int, int]]:
    """The time of each `chosen` event of a thread without the chosen ones inside it: start, end, its `value`."""
    events = np.flatnonzero(chosen & (host.lane == lane))
    starts, ends, values = (column[events].tolist() for column in (host.start, host.end, value))
    found: list[tuple[int, int, int]] = []
    open_: list[int] = []
    at = 0

    def reach(moment: int) -> None:
        """Give the time until `moment` to the innermost event that is open."""
        nonlocal at
        if open_ and moment > at:
            found.append((at, moment, values[open_[-1]]))
        at = max(at, moment)

    for i, start in enumerate(starts):
        while open_ and ends[open_[-1]] <= start:
            reach(ends[open_[-1]])
            open_.pop()
        reach(start)
        open_.append(i)
    while open_:
        reach(ends[open_[-1]])
        open_.pop()
    return found
