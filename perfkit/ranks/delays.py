"""Growth of each rank's lateness from one collective to the next: a delay that lasts counts once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.intervals import Union
from perfkit.ranks.matching import Matched
from perfkit.ranks.members import Member

_ADJACENT_NS = 50e3  # between two collectives of one stream, the second of which waited for the first

_ALIKE = 0.9  # of the lateness before: where it falls further, the others were delayed by themselves


@dataclass(frozen=True)
class _Queue:
    """One member's collectives, lines as in `Matched`; NaN where it takes no part. All in ns.

    `blocked` is how long each could have begun, had its stream not held another collective; `stood` how long the
    member had waited for others without computing until it could have begun.
    """

    blocked: np.ndarray
    stood: np.ndarray


def of(
    members: Sequence[Member], matched: Matched, duration: np.ndarray, wait: np.ndarray, lag: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how late each member is for each collective, and by how much more than before, ns: (collectives, members).

    Computation goes on while a collective waits in its stream (the buckets of DDP): a rank that is late by 30 ms is
    late for every bucket, and delays the step by 30 ms. Only where the others stand still for it do they start again
    together. A collective that waits in its stream for the one before arrives at the moment at which its own
    computation ended.
    """
    queues = [_queue(member, matched.rows[:, i], wait[:, i]) for i, member in enumerate(members)]
    blocked = np.array([one.blocked for one in queues]).T
    stood = np.array([one.stood for one in queues]).T
    lateness, growth = np.full(lag.shape, np.nan), np.full(lag.shape, np.nan)
    level, before, key = np.zeros(len(members)), np.zeros(len(members)), (-1, "")
    for k in range(len(matched)):
        if (int(matched.step[k]), matched.group[k]) != key:
            key, level, before = (int(matched.step[k]), matched.group[k]), np.zeros(len(members)), stood[k]
        middle = _upper_median(duration[k])
        late = np.fmax(lag[k] + blocked[k, middle] - blocked[k], 0.0)
        waited = stood[k] - before
        carried = np.fmax(level - np.fmax(waited[middle] - waited, 0.0), 0.0)
        here = ~np.isnan(lag[k])
        lateness[k, here], growth[k, here] = late[here], np.maximum(late - carried, 0.0)[here]
        caught_up = late < _ALIKE * carried
        level, before = np.where(caught_up, np.nan_to_num(late), np.fmax(carried, late)), stood[k]
    return lateness, growth


def _upper_median(values: np.ndarray) -> int:
    known = np.flatnonzero(~np.isnan(values))
    return int(known[np.argsort(values[known], kind="stable")[len(known) // 2]])


def _queue(member: Member, rows: np.ndarray, wait: np.ndarray) -> _Queue:
    here = np.flatnonzero(rows >= 0)
    blocked, stood = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    ready = _ready(member, rows[here])
    blocked[here] = member.start[rows[here]] - ready
    stood[here] = _standing(member, rows[here], np.nan_to_num(wait[here]), ready)
    return _Queue(blocked, stood)


def _ready(member: Member, rows: np.ndarray) -> np.ndarray:
    """Return when each collective could have begun: where it follows another one in its stream, the end of the last
    computation launched before it, at the earliest the start of the first of those that follow one another."""
    order, start, end = member.frame["order"].to_numpy(float), member.start, member.end
    compute = np.flatnonzero(member.is_compute)
    compute = compute[np.argsort(order[compute], kind="stable")]
    reached = np.maximum.accumulate(np.append(-np.inf, end[compute]))
    computed = reached[np.searchsorted(order[compute], order[rows])]
    ready, streams = start[rows].copy(), member.frame["stream"].to_numpy(object)[rows].tolist()
    last: dict[object, tuple[float, float]] = {}  # of each stream: the start of the row of collectives, and its end
    for k in np.argsort(start[rows], kind="stable").tolist():
        first, until = last.get(streams[k], (0.0, -np.inf))
        if start[rows[k]] - until > _ADJACENT_NS:
            first = start[rows[k]]
        else:
            ready[k] = min(max(computed[k], first), start[rows[k]])
        last[streams[k]] = first, end[rows[k]]
    return ready


def _standing(member: Member, rows: np.ndarray, wait: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Return how long the member has waited without computing before each of the moments, ns."""
    start, computing = member.start, member.is_compute
    waits, works = Union(start[rows], start[rows] + wait), Union(start[computing], member.end[computing])
    edges = np.unique(np.concatenate([[0.0], waits.start, waits.end, works.start, works.end]))
    waited, worked = np.diff(waits.until(edges)), np.diff(works.until(edges))
    bare = waited - np.minimum(waited, worked)  # between two edges both are whole, or nothing
    return np.interp(moments, edges, np.concatenate([[0.0], np.cumsum(bare)]))
