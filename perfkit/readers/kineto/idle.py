"""Why the GPU was idle: what the thread that launched the next activity did meanwhile.

Until its launching call began, that thread was in one of these: waiting for the GPU or a value ("sync"), loading data
("data"), in an operator, autograd or a CUDA call on the way to the launch ("launch-bound": the host could not feed the
GPU in time), or in the program's own code ("host code"). From the call on the work was under way ("latency"). What no
thread explains is "other". The parts of a stretch add up to it by construction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.readers.kineto.events import ANNOTATION, DeviceEvents, HostEvents, Integers
from perfkit.readers.kineto.gaps import Cover
from perfkit.readers.kineto.place import Steps
from perfkit.readers.kineto.rows import CAUSES as TIME_CAUSES
from perfkit.readers.kineto.rows import DATA, LOADER, OTHER, PYTHON_CODE, SYNC, WORK, Rows

CAUSES = LAUNCH, WAIT, LOADING, CODE, LATENCY, UNKNOWN = (
    "launch-bound", "sync", "data", "host code", "latency", "other",
)  # fmt: skip


def idle(host: HostEvents, device: DeviceEvents, steps: Steps, rows: Rows, launch: Integers) -> list[dict[str, Any]]:
    """Idle time of the GPU inside the steps by cause: ns and number of stretches, the longest first."""
    start, end = _stretches(Cover(device.start, device.end), steps)
    part = np.zeros((len(CAUSES), len(start)), np.int64)
    following = np.searchsorted(device.start, end, side="left")
    at = np.minimum(following, len(device) - 1)
    known = (following < len(device)) & (device.start[at] == end) & (launch[at] >= 0)
    call = np.where(known, launch[at], 0)
    lane = np.where(known, host.lane[call], steps.lane) if len(host) else np.full(len(start), -1)
    issued = np.where(known, np.clip(host.start[call], start, end), end) if len(host) else start
    kind = _kinds(host, rows)
    for value in np.unique(lane).tolist():
        mine = np.flatnonzero(lane == value)
        found = _of_lane(host, kind, value, start[mine], issued[mine]) if value >= 0 else None
        part[:, mine] = 0 if found is None else found
    part[CAUSES.index(LATENCY)] = np.where(known, end - issued, 0)
    part[CAUSES.index(UNKNOWN)] = end - start - part.sum(axis=0)
    ns, count = part.sum(axis=1), (part > 0).sum(axis=1)
    entries = [{"cause": c, "ns": int(ns[i]), "count": int(count[i])} for i, c in enumerate(CAUSES) if ns[i]]
    return sorted(entries, key=lambda entry: -entry["ns"])


def _stretches(cover: Cover, steps: Steps) -> tuple[Integers, Integers]:
    """The stretches inside the steps that `cover` leaves free, as starts and ends."""
    starts, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for begin, end in zip(steps.start.tolist(), steps.end.tolist(), strict=True):
        low = int(np.searchsorted(cover.end, begin, side="right"))
        high = int(np.searchsorted(cover.start, end, side="left"))
        starts.append(np.maximum(np.append(begin, cover.end[low:high]), begin))
        ends.append(np.minimum(np.append(cover.start[low:high], end), end))
    start, end_ = np.concatenate(starts), np.concatenate(ends)
    return start[end_ > start], end_[end_ > start]


def _kinds(host: HostEvents, rows: Rows) -> Integers:
    """For each host event the index of the idle cause that its own time means."""
    of_cause = {PYTHON_CODE: CODE, OTHER: CODE, SYNC: WAIT, DATA: LOADING}
    words = [CAUSES.index(of_cause.get(cause, LAUNCH)) for cause in range(WORK, len(TIME_CAUSES))]
    kind = np.array(words, np.int8)[rows.cause - WORK]
    loading = (host.category == ANNOTATION) & host.named([n.startswith(LOADER) for n in host.names])
    if loading.any():
        kind[host.nearest(loading) >= 0] = CAUSES.index(LOADING)
    return kind


def _of_lane(host: HostEvents, kind: Integers, lane: int, start: Integers, end: Integers) -> Integers:
    """How much of each stretch [start, end) the thread spent in each cause; outside all its events in the program."""
    low, high = np.searchsorted(host.lane, [lane, lane + 1])
    moments, inner = _innermost(host, int(low), int(high))
    part = np.zeros((len(CAUSES), len(start)), np.int64)
    if len(inner) > 1:
        cause = np.where(inner >= 0, kind[inner], CAUSES.index(CODE)).astype(np.int64)
        stretch, at = _pieces(moments, start, end)
        ns = np.minimum(moments[at + 1], end[stretch]) - np.maximum(moments[at], start[stretch])
        # Sums of float64 are exact for whole numbers up to 2⁵³ ns, 104 days.
        total = np.bincount(cause[at] * len(start) + stretch, weights=ns, minlength=part.size)
        part = total.reshape(part.shape).astype(np.int64)
    part[CAUSES.index(CODE)] += end - start - part.sum(axis=0)
    return part


def _pieces(moments: Integers, start: Integers, end: Integers) -> tuple[Integers, Integers]:
    """Each stretch [start, end) cut at the `moments` inside it: the stretch of each piece, and the moment from which to
    the next it lies. What lies before the first moment, or after the last, is in none."""
    first = np.maximum(np.searchsorted(moments, start, side="right") - 1, 0)
    count = np.maximum(np.minimum(np.searchsorted(moments, end), len(moments) - 1) - first, 0)
    stretch = np.repeat(np.arange(len(start)), count)
    return stretch, np.arange(len(stretch)) + np.repeat(first - np.cumsum(count) + count, count)


def _innermost(host: HostEvents, low: int, high: int) -> tuple[Integers, Integers]:
    """The moments at which a thread's innermost event changes, and which it is from then on (−1: none)."""
    index = np.arange(low, high, dtype=np.int32)
    index = index[host.end[low:high] > host.start[low:high]]
    # At one moment ends come before starts, inner ends before outer ones, outer starts before inner ones. Starts are in
    # order already, and to merge two sorted halves is what a stable sort does best.
    ends = index[::-1][np.argsort(host.end[index[::-1]], kind="stable")]
    moment = np.concatenate([host.end[ends], host.start[index]])
    order = np.argsort(moment, kind="stable")
    inner = np.concatenate([host.parent[ends], index])[order]
    return moment[order], inner
