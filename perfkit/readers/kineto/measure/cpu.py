"""Rows of operators on the CPU, collectives that a library's thread carries out, and waiting for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.columns import Booleans, Coded, Integers, integers, same
from perfkit.cost.operators.structure import SYNC_COLLECTIVES
from perfkit.intervals import Steps, Union
from perfkit.profile_names import CPU_COLLECTIVES
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.measure.collectives import message_bytes, message_of_range
from perfkit.readers.kineto.measure.rows import AUTOGRAD, OTHER, PYTHON_CODE, RANK, HostRows, costed


def columns(host: HostEvents, rows: HostRows, chosen: Integers) -> dict[str, Any]:
    """Columns of the rows on the CPU, the events `chosen`, but for their places."""
    result: dict[str, Any] = {
        "name": Coded(host.names, host.name[chosen]),
        "kind": same("cpu_op", len(chosen)),
        "device": same("cpu", len(chosen)),
        "stream": integers(host.lane[chosen]),
        "start_ns": host.start[chosen].astype(float),
        "duration_ns": rows.time_ns[chosen].astype(float),
    }
    result.update(costed(rows, chosen))
    return result


def events_of(host: HostEvents, rows: HostRows) -> Integers:
    """The events that are rows on the CPU, in the order of the rows."""
    chosen = np.flatnonzero(rows.is_row)
    return chosen[np.argsort(host.start[chosen], kind="stable")]


def facts(host: HostEvents, steps: Steps, group: dict[str, Any] | None) -> dict[str, Any]:
    """The fact `cpu_collectives`: a record of each, in the order of their starts; no fact without any.

    `start_ns` and `duration_ns` are of the range that the library's thread opens around it. One that begins in a step
    ends with it at the latest: the thread lets the step know that it is done, and may lose its core before it closes
    the range. `step` is −1 outside the steps, `message_bytes` absent where the trace has no shapes. `group` is the
    only one that they can be of (None: not known).
    """
    found = np.flatnonzero(host.named([n.startswith(CPU_COLLECTIVES) for n in host.names]))
    if not len(found):
        return {}
    found = found[np.argsort(host.start[found], kind="stable")]
    step = steps.at(host.start[found])
    inside = step >= 0
    end = host.end[found].copy()
    end[inside] = np.minimum(end[inside], steps.end[step[inside]])
    return {"cpu_collectives": [_one(host, group, *map(int, each)) for each in zip(found, step, end, strict=True)]}


def _one(host: HostEvents, group: dict[str, Any] | None, event: int, step: int, end: int) -> dict[str, Any]:
    message = message_of_range(host, int(host.name[event]), int(host.call[event]))
    size = message_bytes(message)
    if message.collective == "all_gather":  # the range has what a rank puts in, a message is what it gets out
        size = size * len(group["ranks"]) if size is not None and group else None
    return {
        "name": host.names[host.name[event]][:80],
        "collective": message.collective,
        "start_ns": int(host.start[event]),
        "duration_ns": end - int(host.start[event]),
        "step": step,
        **({} if size is None else {"message_bytes": size}),
        **({"dtype": message.dtype} if message.dtype else {}),
        **({"group": f"{group['description'] or group['name']} {group['ranks']}".strip()} if group else {}),
    }


_WAITING = tuple(SYNC_COLLECTIVES.split())
_STILL = (AUTOGRAD, PYTHON_CODE, OTHER, RANK)  # what a thread is in that waits, by the cause of its innermost event
_LEAST_NS, _EARLY_NS = 200_000, 2_000_000  # a thread goes on that late, or before the range closes, on a busy machine
_NEVER = 1 << 62  # ns


def causes(host: HostEvents, cause: Integers) -> Integers:
    """`cause` of each event, where operators that only wait for a collective wait for another rank."""
    return np.where(host.named([name in _WAITING for name in host.names]), RANK, cause)


def waits(host: HostEvents, cause: Integers, lane: int) -> Union:
    """When thread `lane` waits: in a collective of other threads, from its own last event to the collective's end.

    It goes on right after that end; or right before, for a thread of the library may lose its core before it closes the
    range. Where Python code, which leaves no events either, may run, one that goes on much later ran that.
    """
    low, high = (int(i) for i in np.searchsorted(host.lane, [lane, lane + 1]))
    found = np.flatnonzero(host.named([n.startswith(CPU_COLLECTIVES) for n in host.names]) & (host.lane != lane))
    marks = np.sort(np.concatenate([host.start[low:high], host.end[low:high]]))
    if not len(found) or not len(marks):
        return Union(host.start[:0], host.end[:0])
    pairs = zip(host.start[found].tolist(), host.end[found].tolist(), strict=True)
    # The longest stretch of each range, else the last one.
    longest, last = np.array([_stretches(marks, *pair) for pair in pairs], np.int64).transpose(1, 2, 0)
    taken = _may_wait(host, cause, (low, high), *longest)
    begin, end, apart = np.where(taken, longest, last)
    chosen = _may_wait(host, cause, (low, high), begin, end, apart)
    return Union(begin[chosen], end[chosen])


def _stretches(marks: Integers, start: int, end: int) -> list[tuple[int, int, int]]:
    """Return the longest stretch of a range [start, end) without any of `marks`, and the last: bounds, and how much
    later than the range ends (less than 0: earlier) the first mark after it is."""
    low, high = np.searchsorted(marks, [start, end], side="right")
    edges = np.concatenate([[start], marks[low:high], [end]])
    behind = np.append(edges[1:-1], marks[high] if high < len(marks) else _NEVER) - end
    chosen = (int(np.diff(edges).argmax()), len(edges) - 2)
    return [(int(edges[k]), int(edges[k + 1]), int(behind[k])) for k in chosen]


def _may_wait(
    host: HostEvents, cause: Integers, own: tuple[int, int], begin: Integers, end: Integers, apart: Integers
) -> Booleans:
    """Return whether in each stretch the thread with the events `own` waits, and goes on soon enough."""
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
