"""Busy and idle time of the GPU in an export of Nsight Systems, and what the host did while it was idle.

Busy is the union of the intervals of kernels, copies and fills. An idle stretch ends with an activity: the thread that
launched it is asked. Until the launching call returned, that thread was in some CUDA call, or in none ("host code");
from then on the work was under way to the GPU ("latency"). Where the call had returned before the GPU fell idle, the
GPU went from one piece of work to the next ("queued"). The parts of a stretch add up to it by construction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.intervals import Steps, Union, stretches
from perfkit.profile_names import CUDA_ALLOCATION, DRIVER, LAUNCH, STREAM_WAIT, SYNC, cause_of_call, effect_of_call
from perfkit.readers.nsys.activity import COPY, DIRECTIONS, GRAPH, KERNEL, Activity, CudaCalls, calls_behind, usable
from perfkit.readers.nsys.database import ABSENT, Database, Integers
from perfkit.readers.nsys.ranges import StepRanges

SYNCHRONISATIONS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
# ENUM_CUPTI_SYNC_TYPE, for waits whose call is not in the capture. Where it is, its name is better: exports give
# waits of cudaStreamSynchronize the number of "stream waits for an event".
_OF_A_STREAM = "stream waits for an event"
_WAITS = {1: "wait for an event", 2: _OF_A_STREAM, 3: "wait for a stream", 4: "wait for a context"}

HOST, LATENCY, QUEUED, OTHER = "host code", "latency", "queued", "other"
CAUSES = (SYNC, CUDA_ALLOCATION, LAUNCH, DRIVER, HOST, LATENCY, QUEUED, OTHER)


def steps_of(marked: Steps, activity: Activity) -> Steps:
    """The marked steps; without any the stretch from the first activity to the end of the last counts as one."""
    if marked.marked or not len(activity):
        return marked
    return Steps(activity.start.min(keepdims=True), activity.end.max(keepdims=True), marked.lane, False)


def account(activity: Activity, calls: CudaCalls, launch: Integers, steps: Steps, marks: StepRanges) -> dict[str, Any]:
    """Facts about where the steps went: steps, step_ns, busy_ns, gaps, events; busy plus gaps is their time.

    A gap has the pass of `marks` around the whole stretch, if there is one.
    """
    cover = Union(activity.start, activity.end)
    length = steps.end - steps.start
    busy = cover.until(steps.end) - cover.until(steps.start)
    idle = stretches(cover, steps)
    part = _parts(idle, activity, calls, launch, steps.lane)
    first, last = marks.passes.at(idle[0]), marks.passes.at(idle[1] - 1)
    within = np.where(first == last, first, -1)
    names = np.array([*marks.pass_names, ""], dtype=object)[within]  # −1 is the last: no pass
    gaps = [
        {"cause": cause, "pass": name or None, "ns": int(part[i, names == name].sum()), "count": int(count)}
        for i, cause in enumerate(CAUSES)
        for name in dict.fromkeys(names.tolist())
        if (count := (part[i, names == name] > 0).sum())
    ]
    return {
        "steps": len(length),
        "step_ns": length.tolist(),
        "busy_ns": busy.tolist(),
        "gaps": sorted(gaps, key=lambda gap: -gap["ns"]),
        "events": len(activity) + len(calls),
    }


def _parts(
    idle: tuple[Integers, Integers, Integers], activity: Activity, calls: CudaCalls, launch: Integers, lane: int
) -> Integers:
    """Idle ns by cause (rows) and stretch (columns)."""
    start, end, began = idle
    part = np.zeros((len(CAUSES), len(start)), np.int64)
    following = np.searchsorted(activity.start, end, side="left")
    ends_it = (following < len(activity)) & (activity.start[np.minimum(following, len(activity) - 1)] == end)
    call = np.where(ends_it, launch[np.minimum(following, len(activity) - 1)], -1)
    known = call >= 0
    thread = np.where(known, calls.thread[call], lane) if len(calls) else np.full(len(start), ABSENT)
    issued = np.where(known, np.clip(calls.end[call], start, end), end) if len(calls) else end
    for value in np.unique(thread).tolist():
        mine = thread == value
        if value == ABSENT or not len(calls):
            part[CAUSES.index(OTHER), mine] = (end - start)[mine]
        else:
            part[:, mine] = _of_thread(calls, value, start[mine], issued[mine])
    queued = known & (calls.end[call] <= began) if len(calls) else known
    part[CAUSES.index(LATENCY)] += np.where((thread == ABSENT) | queued, 0, end - issued)
    part[CAUSES.index(QUEUED)] = np.where(queued, end - start, 0)
    return part


def _of_thread(calls: CudaCalls, thread: int, start: Integers, end: Integers) -> Integers:
    """Return how much of each stretch [start, end) the thread spent in calls of each kind, and in none."""
    low, high = np.searchsorted(calls.thread, [thread, thread + 1])
    begin, finish = calls.start[low:high], calls.end[low:high]
    # A call inside another is part of it: only what reaches beyond all earlier ones counts.
    reach = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, finish))[:-1]
    begin = np.maximum(begin, np.minimum(reach, finish))
    kind = np.array([CAUSES.index(cause_of_call(n)) for n in calls.name[low:high]], dtype=np.int64)
    part = np.zeros((len(CAUSES), len(start)), np.int64)
    for code in np.unique(kind).tolist():
        cover = Union(begin[kind == code], finish[kind == code])
        part[code] = cover.until(end) - cover.until(start)
    part[CAUSES.index(HOST)] = end - start - part.sum(axis=0)
    return part


def devices(activity: Activity) -> list[dict[str, Any]]:
    """For each GPU how long it was busy from its first activity to the end of its last."""
    found = []
    for device in np.unique(activity.device).tolist():
        mine = activity.device == device
        start, end = activity.start[mine], activity.end[mine]
        cover = Union(start, end)
        found.append(
            {
                "device": device_name(device),
                "activities": int(mine.sum()),
                "kernels": int((mine & activity.of(KERNEL)).sum()),
                "span_ns": int(end.max() - start.min()),
                "busy_ns": int(cover.before[-1]),
                "kernel_ns": int((end - start)[activity.of(KERNEL, GRAPH)[mine]].sum()),
            }
        )
    return found


def device_name(device: int) -> str:
    """`cuda:0`, or `cuda` where the number is missing."""
    return "cuda" if device == ABSENT else f"cuda:{device}"


def copies(activity: Activity) -> list[dict[str, Any]]:
    """Copies by direction and kind of memory: count, bytes (None where unknown) and time, the longest first.

    Those without bytes are an entry of their own, so that the others keep their sum.
    """
    found: dict[tuple[str, bool], dict[str, Any]] = {}
    for i in np.flatnonzero(activity.of(COPY)).tolist():
        direction = DIRECTIONS.get(int(activity.direction[i]), "unknown")
        amount = int(activity.amount[i])
        fresh = {"name": activity.name[i], "direction": direction, "count": 0, "bytes": 0, "ns": 0}
        entry = found.setdefault((activity.name[i], amount >= 0), fresh)
        entry["count"] += 1
        entry["ns"] += int(activity.end[i] - activity.start[i])
        entry["bytes"] = None if amount < 0 else entry["bytes"] + amount
    return sorted(found.values(), key=lambda entry: -entry["ns"])


def synchronisations(database: Database, calls: CudaCalls) -> list[dict[str, Any]]:
    """Return the waits of the host for the GPU by the CUDA call that waited: count and time, the longest first."""
    raw = database.integers(SYNCHRONISATIONS, ("start", "end", "syncType", "globalPid", "correlationId"))
    call = calls_behind(raw["globalPid"], raw["correlationId"], calls)
    found: dict[str, dict[str, Any]] = {}
    for i in np.flatnonzero(usable(raw["start"], raw["end"])).tolist():
        kind = calls.name[call[i]] if call[i] >= 0 else _WAITS.get(int(raw["syncType"][i]), "wait of unknown kind")
        if kind == _OF_A_STREAM or effect_of_call(kind) == STREAM_WAIT:  # the host goes on
            continue
        entry = found.setdefault(kind, {"kind": kind, "count": 0, "ns": 0})
        entry["count"] += 1
        entry["ns"] += int(raw["end"][i] - raw["start"][i])
    return sorted(found.values(), key=lambda entry: -entry["ns"])


def api_calls(calls: CudaCalls, most: int = 20) -> list[dict[str, Any]]:
    """CUDA calls by name: count and time on the host, the longest first, `most` of them."""
    found: dict[str, dict[str, Any]] = {}
    for name, ns in zip(calls.name, (calls.end - calls.start).tolist(), strict=True):
        entry = found.setdefault(name, {"name": name[:200], "count": 0, "ns": 0})
        entry["count"] += 1
        entry["ns"] += ns
    return sorted(found.values(), key=lambda entry: -entry["ns"])[:most]
