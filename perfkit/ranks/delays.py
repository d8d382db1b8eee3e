"""Growth of each rank's lateness from one collective to the next: a delay that lasts counts once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.intervals import Union
from perfkit.ranks.matching import Matched
from perfkit.ranks.rank_table import RankTable

_ADJACENT_NS = 50e3  # between two collectives of one stream, the second of which waited for the first
_AT_ONCE_NS = 100e3  # from the end of a collective to computation that waited for it, also by way of the host

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
    members: Sequence[RankTable], matched: Matched, duration: np.ndarray, wait: np.ndarray, lag: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how late each member is for each collective, and by how much more than before, ns: (collectives, members).

    Computation goes on while a collective waits in its stream (the buckets of DDP): a rank that is late by 30 ms is
    late for every bucket, and delays the step by 30 ms. Only where the others stand still for it do they start again
    together. A collective that waits in its stream for the one before arrives at the moment at which its own
    computation ended.
    """
    queues = [_queue(member, matched.rows[:, i], wait[:, i]) for i, member in enumerate(members)]
    blocked = np.array([queue.blocked for queue in queues]).T
    stood = np.array([queue.stood for queue in queues]).T
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


def _queue(member: RankTable, rows: np.ndarray, wait: np.ndarray) -> _Queue:
    here = np.flatnonzero(rows >= 0)
    blocked, stood = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    ready = _ready(member, rows[here])
    blocked[here] = member.start[rows[here]] - ready
    stood[here] = _standing(member, rows[here], np.nan_to_num(wait[here]), ready)
    return _Queue(blocked, stood)


def _ready(member: RankTable, rows: np.ndarray) -> np.ndarray:
    """Return when each collective could have begun, ns, had its stream and the multiprocessors been free for it.

    That is its start, unless it waited. One that follows another one in its stream could have begun when the last
    computation launched before it ended, at the earliest with the first of those that follow one another. One that
    starts after computation that was launched later had been launched by then: it waited for the one before, or for
    multiprocessors that the computation holds.
    """
    start, end = member.start, member.end
    computed, launched = _computation_around(member, rows)
    ready, streams = start[rows].copy(), member.frame["stream"].to_numpy(object)[rows].tolist()
    last: dict[object, tuple[float, float]] = {}  # of each stream: from when its collectives could begin, and its end
    for k in np.argsort(start[rows], kind="stable").tolist():
        first, until = last.get(streams[k], (0.0, -np.inf))
        if start[rows[k]] - until > _ADJACENT_NS:
            first = min(launched[k], start[rows[k]])
        ready[k] = min(max(computed[k], first), start[rows[k]])
        last[streams[k]] = first, end[rows[k]]
    return ready


def _computation_around(member: RankTable, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return when all computation launched before each row had ended, and when the first one after it began, ns."""
    order = member.frame["order"].to_numpy(float)
    compute = np.flatnonzero(member.is_compute)
    compute = compute[np.argsort(order[compute], kind="stable")]
    place = np.searchsorted(order[compute], order[rows])
    ended = np.maximum.accumulate(np.append(-np.inf, member.end[compute]))
    begun = np.minimum.accumulate(np.append(member.start[compute], np.inf)[::-1])[::-1]
    return ended[place], begun[place]


def _standing(member: RankTable, rows: np.ndarray, wait: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Return how long the member has stood still for others before each of the moments, ns."""
    if not len(rows):
        return np.zeros(0)
    begin, ended = _held_up(member, rows[np.argsort(member.end[rows], kind="stable")])
    waits = Union(member.start[rows], member.start[rows] + wait)
    stood = np.stack([np.zeros(len(ended)), waits.until(ended) - waits.until(begin)], axis=1)
    moment = np.stack([begin, ended], axis=1)
    return np.interp(moments, np.append(-1.0, moment.ravel()), np.append(0.0, np.cumsum(stood)))


def _held_up(member: RankTable, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the times without computation that end because a collective ends: their begin, and that end, ns.

    `rows` are the collectives by their ends. The member goes on because of one where it does so at once, or in the
    collective's own stream. A GPU that goes on at another moment waited for its host, which launches no sooner where
    nobody is late.
    """
    start, end, stream = member.start, member.end, member.frame["stream"].to_numpy(object)
    works = Union(start[member.is_compute], end[member.is_compute])
    begin, until = np.append(0.0, works.end), np.append(works.start, np.inf)
    last = np.searchsorted(end[rows], until, side="right") - 1  # the collective that ended last before it goes on
    inside = (last >= 0) & (end[rows][last] >= begin)
    begin, until, last = begin[inside], until[inside], rows[last[inside]]
    others = np.append(np.sort(start[~member.is_collective]), np.inf)
    at_once = others[np.searchsorted(others, end[last])] - end[last] <= _AT_ONCE_NS
    streams = dict(zip(start[member.is_compute].tolist(), stream[member.is_compute].tolist(), strict=True))
    same = np.array([streams.get(at) == one for at, one in zip(until.tolist(), stream[last], strict=True)], bool)
    return begin[at_once | same], end[last][at_once | same]
