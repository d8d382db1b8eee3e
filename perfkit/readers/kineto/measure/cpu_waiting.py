"""When the thread of the steps waits for collectives that threads of a library carry out on CPUs.

The wait itself (`Work.wait`, DDP's reducer at the end of backward, FSDP's hooks) leaves no event: the thread stands
still until the collective has ended, and goes on right after it. `wait_tensor` and `barrier` are operators that do
nothing else.
"""

from __future__ import annotations

import numpy as np

from perfkit.cost.operators.structure import SYNC_COLLECTIVES
from perfkit.readers.columns import Integers
from perfkit.readers.intervals import Cover
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.measure.rows import AUTOGRAD, COLLECTIVE_ON_CPU, OTHER, PYTHON_CODE, RANK

_WAITING = tuple(SYNC_COLLECTIVES.split())
_STILL = (AUTOGRAD, PYTHON_CODE, OTHER, RANK)  # what a thread is in that waits, by the cause of its innermost event
_LEAST_NS = 200_000  # a thread that slept goes on that late on a busy machine


def causes(host: HostEvents, cause: Integers) -> Integers:
    """`cause` of each event, where operators that only wait for a collective wait for another rank."""
    return np.where(host.named([name in _WAITING for name in host.names]), RANK, cause)


def waits(host: HostEvents, cause: Integers, lane: int) -> Cover:
    """When thread `lane` waits: in a collective of other threads, from its own last event to the collective's end.

    Where Python code, which leaves no events either, may run, one that goes on much later than the collective ends ran
    that.
    """
    low, high = (int(i) for i in np.searchsorted(host.lane, [lane, lane + 1]))
    found = np.flatnonzero(host.named([n.startswith(COLLECTIVE_ON_CPU) for n in host.names]) & (host.lane != lane))
    marks = np.sort(np.concatenate([host.start[low:high], host.end[low:high]]))
    if not len(found) or not len(marks):
        return Cover(host.start[:0], host.end[:0])
    begin, end = host.start[found], host.end[found]
    at = np.searchsorted(marks, end, side="left")
    begin = np.maximum(begin, marks[np.maximum(at - 1, 0)])
    later = marks[np.minimum(at, len(marks) - 1)] - end
    inner = _innermost(host, low, high, begin)
    of = np.where(inner >= 0, cause[inner], OTHER)
    at_once = (of == AUTOGRAD) | (later <= np.maximum(end - begin, _LEAST_NS))
    chosen = (at > 0) & (at < len(marks)) & (begin < end) & np.isin(of, _STILL) & at_once
    return Cover(begin[chosen], end[chosen])


def _innermost(host: HostEvents, low: int, high: int, moments: Integers) -> Integers:
    """The innermost event of a thread [low, high) that is open at and after each of `moments`, −1 for none."""
    found = np.searchsorted(host.start[low:high], moments, side="right") - 1 + low
    found = np.where(found >= low, found, -1)
    while (closed := (found >= 0) & (host.end[found] <= moments)).any():
        found[closed] = host.parent[found[closed]]
    return found
