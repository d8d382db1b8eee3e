"""Accounting of a step on a CPU: rows + gaps = the step's wall time, every gap with a cause. `idle` does it for a GPU.

The step's own thread is partitioned by the self times of its events, so that the sum is exact by construction. Rows on
other threads run at the same time: the part of a gap that they cover does not count (the union of intervals).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfkit.columns import Integers
from perfkit.intervals import Steps, Union
from perfkit.numbers import unique
from perfkit.profile_names import MODULE, PREFIX, PROFILER_STEP
from perfkit.readers.kineto.attribution.places import EventPlaces
from perfkit.readers.kineto.decode.arrange import without_children
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.measure import cpu
from perfkit.readers.kineto.measure.rows import CAUSES, OTHER, PROFILER, RANK, WORK, HostRows


@dataclass(frozen=True)
class StepGaps:
    """Per step in ns: wall time and what rows cover of it; and over all steps the gaps by cause and pass.

    `events` are those inside the steps on their thread, `recorded` those whose recording lengthened gaps; `held_by` the
    operators in which the host was for long before it launched.
    """

    step_ns: list[int]
    busy_ns: list[int]
    gaps: list[dict[str, Any]]
    events: int
    recorded: int
    held_by: list[dict[str, Any]] = field(default_factory=list)
    long_gaps: list[dict[str, Any]] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """The part of `KernelTable.facts` about where the profiled steps went."""
        return {
            "steps": len(self.step_ns),
            "step_ns": self.step_ns,
            "busy_ns": self.busy_ns,
            "gaps": self.gaps,
            "events": self.events,
        } | {name: found for name in ("held_by", "long_gaps") if (found := getattr(self, name))}


def account(
    events: HostEvents, steps: Steps, place: EventPlaces, rows: HostRows, event_cost_ns: float | None
) -> StepGaps:
    """Account for every step of a trace without GPU work.

    `event_cost_ns`: what recording one event costs (None: no estimate of that).
    """
    others = rows.is_row & (events.lane != steps.lane)
    elsewhere = Union(events.start[others], events.end[others])
    low, high = np.searchsorted(events.lane, [steps.lane, steps.lane + 1])
    own = slice(int(low), int(high))  # the events of the step's own thread
    causes = cpu.causes(events, rows.cause)
    waits = cpu.waits(events, causes, steps.lane)
    step, pass_, cause = place.step[own], place.pass_[own], causes[own]
    mine = step >= 0
    parent = np.where(events.parent[own] >= 0, events.parent[own] - int(low), -1)
    bounds = events.start[own], events.end[own]
    uncovered = without_children(parent, _uncovered(elsewhere, *bounds))
    waited = without_children(parent, _beside(waits, elsewhere, *bounds))
    is_gap = mine & ~rows.is_row[own] & (cause != WORK)
    step_ns = steps.end - steps.start
    loose = _uncovered(elsewhere, steps.start, steps.end) - _per_step(step[mine], uncovered[mine], len(step_ns))
    gap_of_step = loose + _per_step(step[is_gap], uncovered[is_gap], len(step_ns))
    rank = np.full(int(is_gap.sum()), RANK)
    gaps = by_cause(
        np.concatenate([cause[is_gap], rank]),
        np.concatenate([pass_[is_gap], pass_[is_gap]]),
        np.concatenate([(uncovered - waited)[is_gap], waited[is_gap]]),
        place.pass_names,
    )
    unmarked = _beside(waits, elsewhere, steps.start, steps.end) - _per_step(step[mine], waited[mine], len(step_ns))
    for of_cause, ns in ((OTHER, loose - unmarked), (RANK, unmarked)):
        if ns.any():
            gaps.append(_gap(of_cause, None, int(ns.sum()), int((ns > 0).sum())))
    count = int(np.count_nonzero(mine))
    gaps = with_profiler(gaps, count * (event_cost_ns or 0.0), (CAUSES[RANK],))
    gaps.sort(key=lambda g: -g["ns"])
    return StepGaps(step_ns.tolist(), (step_ns - gap_of_step).tolist(), gaps, count, count)


def _uncovered(cover: Union, start: Integers, end: Integers) -> Integers:
    """Return how much of each interval [start, end) the cover leaves free, in ns."""
    return (end - start) - (cover.until(end) - cover.until(start))


def _beside(cover: Union, other: Union, start: Integers, end: Integers) -> Integers:
    """Return how much of each interval [start, end) is in `cover` and not in the `other` one, in ns."""
    both = Union(np.concatenate([cover.start, other.start]), np.concatenate([cover.end, other.end]))
    return _uncovered(other, start, end) - _uncovered(both, start, end)


def _per_step(step: Integers, amount: Integers, count: int) -> Integers:
    # Sums of float64 are exact for whole numbers up to 2⁵³ ns, 104 days.
    return np.bincount(step, weights=amount, minlength=count).astype(np.int64)


def by_cause(
    cause: Integers, pass_: Integers, ns: Integers, pass_names: list[str], stretch: Integers | None = None
) -> list[dict[str, Any]]:
    """Gaps summed over cause and pass; `count` is how many parts make up each, or of how many stretches these are."""
    pairs = len(pass_names) + 1
    code = (cause.astype(np.int64) + 1) * pairs + pass_ + 1
    total = _per_step(code, ns, 0)
    counted = code[ns > 0]
    if stretch is not None:
        each = int(stretch.max(initial=0)) + 1
        counted = unique(counted * each + stretch[ns > 0]) // each
    count = np.bincount(counted, minlength=len(total))
    return [
        _gap(c // pairs - 1, pass_names[c % pairs - 1] if c % pairs else None, int(total[c]), int(count[c]))
        for c in np.flatnonzero(total).tolist()
    ]


def with_profiler(gaps: list[dict[str, Any]], estimate: float, spared: Collection[str] = ()) -> list[dict[str, Any]]:
    """Take the profiler's estimated share out of all gaps in proportion, but for `spared` causes; the sum of all stays
    what it was."""
    total = sum(g["ns"] for g in gaps if g["cause"] not in spared)
    share = min(1.0, estimate / total) if total else 0.0
    known = {g["pass"]: g for g in gaps if g["cause"] == CAUSES[PROFILER]}
    for gap in gaps:
        if gap["cause"] not in spared and (part := int(gap["ns"] * share)):
            gap["ns"] -= part
            known.setdefault(gap["pass"], _gap(PROFILER, gap["pass"], 0, 0))["ns"] += part
    own = [g for g in known.values() if g["ns"]]
    return [g for g in gaps if g["ns"] and g["cause"] != CAUSES[PROFILER]] + own


def _gap(cause: int, pass_: str | None, ns: int, count: int) -> dict[str, Any]:
    return {"cause": CAUSES[cause], "pass": pass_, "ns": ns, "count": count}


_LONG = 0.1  # of all steps
_MOST = 3
_COVERS = 0.8  # of a gap: the share that an event covers at least to name it


def long_gaps(
    host: HostEvents, stretch: Integers, cause: Integers, ns: Integers, event: Integers, steps_ns: float
) -> list[dict[str, Any]]:
    """Gaps of a tenth of the steps or more, the longest first, from their pieces: `ns`, `name` (of the innermost event
    that covers most of it; "" where none but the step does) and `cause`, which has most of it."""
    total = np.bincount(stretch, weights=ns) if len(stretch) else np.zeros(0)
    chosen = np.flatnonzero((total > 0) & (total >= _LONG * steps_ns))
    found = []
    for gap in chosen[np.argsort(-total[chosen], kind="stable")][:_MOST].tolist():
        mine = np.flatnonzero(stretch == gap)
        by_cause = np.bincount(cause[mine], weights=ns[mine])
        largest = mine[int(np.argmax(ns[mine]))]
        name = _covering(host, int(event[largest]), float(total[gap]))
        found.append({"ns": int(total[gap]), "name": name, "cause": CAUSES[int(by_cause.argmax())]})
    return found


def _covering(host: HostEvents, event: int, ns: float) -> str:
    """The name of the innermost event around `event` that lasts for most of `ns`."""
    while event >= 0 and host.end[event] - host.start[event] < _COVERS * ns:
        event = int(host.parent[event])
    name = host.names[host.name[event]] if event >= 0 else ""
    if name.startswith(MODULE):
        return f"the module {name.removeprefix(MODULE)}"
    return "" if name.startswith((PROFILER_STEP, PREFIX)) else name
