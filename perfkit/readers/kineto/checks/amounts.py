"""Checks of times: of each activity, of the parts of a step, and of what ran in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfkit import units
from perfkit.columns import Integers
from perfkit.intervals import Union
from perfkit.numbers import unique
from perfkit.readers.kineto.checks.evidence import (
    DEFECT,
    DOES_NOT_APPLY,
    NS,
    OTHER_PROFILER,
    ROUNDING,
    CheckOutcome,
    Evidence,
)
from perfkit.readers.kineto.decode.events import OPERATOR, in_whole_us
from perfkit.readers.kineto.measure.collectives import collectives

_WITHOUT_TIME = 0.01  # of the activities of a GPU
_BELOW_RESOLUTION = 0.5  # of operators, and of all events of a trace in whole µs: the shortest have none
_NOISE, _IMPOSSIBLE = 1.1, 1.5  # busy time over timed step: clocks of two measurements differ; and what cannot be


def times(e: Evidence) -> CheckOutcome:
    """Activities of a GPU have times; without a GPU operators."""
    on_gpu = len(e.device) > 0
    if on_gpu:
        start, end = e.device.start, e.device.end
    else:
        operators = e.host.category == OPERATOR
        start, end = e.host.start[operators], e.host.end[operators]
    length, of = end - start, len(start)
    if not of:
        return DOES_NOT_APPLY
    none = int((length <= 0).sum())
    whole = in_whole_us(start, end)
    holds = none <= (_BELOW_RESOLUTION if whole or not on_gpu else _WITHOUT_TIME) * of and none < of
    what = "activities of the GPU" if on_gpu else "operators"
    short = "last less than the µs that the trace counts in: they count with no time"
    said = none > 0 and (on_gpu or not holds)
    words = f"{none} of {of} {what} {short if holds and whole else 'have no time'}" if said else ""
    return CheckOutcome(holds=holds, figure=none / of, events=none, of=of, sentence=words, hint=OTHER_PROFILER)


def parts(e: Evidence) -> CheckOutcome:
    """Busy and idle time add up to the steps; on a GPU by causes, and by the stretches between activities."""
    step_ns, busy_ns = e.facts["step_ns"], e.facts["busy_ns"]
    whole, of = sum(step_ns), len(step_ns)
    if not whole:
        return DOES_NOT_APPLY
    worst = abs(whole - sum(busy_ns) - sum(gap["ns"] for gap in e.facts["gaps"]))
    if e.facts.get("per_step"):
        stretches = sum(part["ns"] for part in e.facts["idle"])
        worst = max(worst, abs(whole - sum(step["busy_ns"] for step in e.facts["per_step"]) - stretches))
    if worst <= of:
        return CheckOutcome(holds=True, figure=float(worst), unit=NS, of=of)
    words = f"busy and idle time of {of} steps miss their length by {units.text(float(worst), 'ns')}"
    return CheckOutcome(holds=False, figure=float(worst), unit=NS, events=of, of=of, sentence=words, hint=DEFECT)


def busy(e: Evidence) -> CheckOutcome:
    """The time in which something runs is no longer than the step; on a GPU than up to the end of what it launched."""
    room = e.steps.end - e.steps.start
    if not room.sum():
        return DOES_NOT_APPLY
    ran = np.array(e.facts["busy_ns"], np.int64)
    if len(e.device):
        ran, room = _launched(e, room)
    over, of = ran - room, len(room)
    events = int((over > ROUNDING).sum())
    share = float((ran / np.maximum(room, 1)).max())
    if not events:
        return CheckOutcome(holds=True, figure=share, of=of)
    most = units.text(float(over.max()), "ns")
    words = f"in {events} of {of} steps more time is busy than there is, by up to {most}"
    return CheckOutcome(holds=False, figure=share, events=events, of=of, sentence=words, hint=DEFECT)


def _launched(e: Evidence, length: Integers) -> tuple[Integers, Integers]:
    """By step the union of the activities that it launched, and the time that there was for them."""
    known = np.flatnonzero(e.launch >= 0)
    step = e.steps.at(e.host.start[e.launch[known]])
    known, step = known[step >= 0], step[step >= 0]
    order = np.argsort(step, kind="stable")
    first = np.searchsorted(step[order], np.arange(len(length) + 1))
    ran, room = np.zeros(len(length), np.int64), length.copy()
    for i in unique(step).tolist():
        mine = known[order[first[i] : first[i + 1]]]
        start, end = e.device.start[mine], e.device.end[mine]
        ran[i] = Union(start, end).before[-1]
        room[i] = max(int(e.steps.end[i]), int(end.max())) - int(e.steps.start[i])
    return ran, room


def timed(e: Evidence) -> CheckOutcome:
    """A step without the profiler takes no less than the GPU is busy in one with it.

    Collectives are left out: their kernels also last while they wait for other ranks, which profilers delay.
    """
    without = e.expected.timed_ns if e.expected else None
    if not without or not len(e.device) or not e.facts["busy_ns"]:
        return DOES_NOT_APPLY
    busy_ns = _without_collectives(e)
    beside = " next to collectives" if collectives(e.device).any() else ""
    ran, of = sum(busy_ns) / len(busy_ns), len(busy_ns)
    share = ran / without
    if share <= _NOISE:
        return CheckOutcome(holds=True, figure=share, of=of)
    words = (
        f"the GPU is busy for {units.text(ran, 'ns')} of a profiled step{beside}, and a step without the profiler "
        f"takes {units.text(without, 'ns')}"
    )
    return CheckOutcome(holds=False, figure=share, events=of, of=of, needed=share > _IMPOSSIBLE, sentence=words)


def _without_collectives(e: Evidence) -> Sequence[int]:
    """Busy ns of each step; where GPUs talk to each other only what else runs."""
    talks = collectives(e.device)
    if not talks.any():
        known: Sequence[int] = e.facts["busy_ns"]
        return known
    cover = Union(e.device.start[~talks], e.device.end[~talks])
    busy_ns: list[int] = (cover.until(e.steps.end) - cover.until(e.steps.start)).tolist()
    return busy_ns
