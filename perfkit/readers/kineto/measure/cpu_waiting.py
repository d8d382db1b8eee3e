"""When the thread of the steps waits for collectives that threads of a library carry out on CPUs.

The wait itself (`Work.wait`, DDP's reducer at the end of backward, FSDP's hooks) leaves no event: the thread stands
still until the collective has ended, and goes on right after it. `wait_tensor` and `barrier` are operators that do
nothing else.
"""

from __future__ import annotations

import numpy as np

from perfkit.cost.operators.structure import SYNC_COLLECTIVES
from perfkit.profile_names import CPU_COLLECTIVES
from perfkit.readers.columns import Booleans, Integers
from perfkit.readers.intervals import Cover
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.measure.rows import AUTOGRAD, OTHER, PYTHON_CODE, RANK

_WAITING = tuple(SYNC_COLLECTIVES.split())
_STILL = (AUTOGRAD, PYTHON_CODE, OTHER, RANK)  # what a thread is in that waits, by the cause of its innermost event
_LEAST_NS, _EARLY_NS = 200_000, 2_000_000  # a thread goes on that late, or before the range closes, on a busy machine
_NEVER = 1 << 62  # ns


def causes(host: HostEvents, cause: Integers) -> Integers:
    """`cause` of each event, where operators that only wait for a collective wait for another rank."""
    return np.where(host.named([name in _WAITING for name in host.names]), RANK, cause)


def waits(host: HostEvents, cause: Integers, lane: int) -> Cover:
    """When thread `lane` waits: in a collective of other threads, from its own last event to the collective's end.

    It goes on right after that end; or right before, for a thread of the library may lose its core before it closes the
    range. Where Python code, which leaves no events either, may run, one that goes on much later ran that.
    """
    low, high = (int(i) for i in np.searchsorted(host.lane, [lane, lane + 1]))
    found = np.flatnonzero(host.named([n.startswith(CPU_COLLECTIVES) for n in host.names]) & (host.lane != lane))
    marks = np.sort(np.concatenate([host.start[low:high], host.end[low:high]]))
    if not len(found) or not len(marks):
        return Cover(host.start[:0], host.end[:0])
    pairs = zip(host.start[found].tolist(), host.end[found].tolist(), strict=True)
    # Of each range the longest stretch, else the last one.
    longest, last = np.array([_stretches(marks, *pair) for pair in pairs], np.int64).transpose(1, 2, 0)
    taken = _may_wait(host, cause, (low, high), *longest)
    begin, end, apart = np.where(taken, longest, last)
    chosen = _may_wait(host, cause, (low, high), begin, end, apart)
    return Cover(begin[chosen], end[chosen])


def _stretches(marks: Integers, start: int, end: int) -> list[tuple[int, int, int]]:
    """Of a range [start, end) the longest stretch without any of `marks`, and the last: bounds, and how much later than
    the range ends (less than 0: earlier) the first mark behind is."""
    low, high = np.searchsorted(marks, [start, end], side="right")
    edges = np.concatenate([[start], marks[low:high], [end]])
    behind = np.append(edges[1:-1], marks[high] if high < len(marks) else _NEVER) - end
    chosen = (int(np.diff(edges).argmax()), len(edges) - 2)
    return [(int(edges[k]), int(edges[k + 1]), int(behind[k])) for k in chosen]


def _may_wait(
    host: HostEvents, cause: Integers, own: tuple[int, int], begin: Integers, end: Integers, apart: Integers
) -> Booleans:
    """Whether in each stretch the thread with the events `own` stands still, and goes on soon enough."""
    inner = _innermost(host, *own, begin)
    of = np.where(inner >= 0, cause[inner], OTHER)
    early = np.where(of == AUTOGRAD, end - begin, _EARLY_NS)
    late = np.where(of == AUTOGRAD, _NEVER, np.maximum(end - begin, _LEAST_NS))
    found: Booleans = (begin < end) & np.isin(of, _STILL) & (apart >= -early) & (apart <= late)
    return found


def _innermost(host: HostEvents, low: int, high: int, moments: Integers) -> Integers:
    """The innermost event of a thread [low, high) that is open at and after each of `moments`, −1 for none."""
    found = np.searchsorted(host.start[low:high], moments, side="right") - 1 + low
    found = np.where(found >= low, found, -1)
    while (closed := (found >= 0) & (host.end[found] <= moments)).any():
        found[closed] = host.parent[found[closed]]
    return found
