"""NVTX ranges of an export of Nsight Systems, projected onto the GPU by a sweep over each thread.

A range covers the CUDA calls that its thread makes while it is open, and through them what they launched on the GPU.
One pass over a thread's ranges and calls in order of time, with the open ranges at hand, is far cheaper than a join.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfkit.intervals import Steps
from perfkit.profile_names import PASS, PREFIX, STEP, from_trace, module_of, pass_of, step_of
from perfkit.readers.nsys.activity import CudaCalls, process_of, usable
from perfkit.readers.nsys.database import ABSENT, Database, Integers
from perfkit.units import cropped

RANGES = "NVTX_EVENTS"
_PUSH_POP, _START_END = 59, 60
_OPERATOR = re.compile(r"^(\w+::\w+)")  # torch.autograd.profiler.emit_nvtx: "aten::addmm, seq = 4, op_id = 10"
_LONGEST = 200  # characters of a range's name in paths and facts
_NOTHING_OPEN = ()


@dataclass
class Ranges:
    """Ranges by thread, then start, the outer first. `unclosed`: how many never ended; they last to the end."""

    start: Integers
    end: Integers
    thread: Integers
    name: list[str]
    dropped: list[str] = field(default_factory=list)
    unclosed: int = 0

    def __len__(self) -> int:
        return len(self.start)

    def naming(self, what: Callable[[str], str | None], prefix: str) -> Integers:
        """Return the ranges whose names give `what`, in order of time; only those with `prefix` (perfkit's), if any."""
        has = {name: what(name) is not None for name in set(self.name)}
        ours = {name for name, does in has.items() if does and name.startswith(prefix)}
        found = np.array([i for i, name in enumerate(self.name) if (name in ours if ours else has[name])], np.int64)
        return found[np.argsort(self.start[found], kind="stable")]


def read_ranges(database: Database, last: int) -> Ranges:
    """The push/pop and start/end ranges. `last` in ns is where a range that never ended is cut."""
    raw = database.integers(RANGES, ("start", "end", "eventType", "globalTid", "textId", "rowid"))
    is_range = np.isin(raw["eventType"], (_PUSH_POP, _START_END))
    text = _texts(database, raw["textId"])
    open_ = is_range & (raw["end"] == ABSENT) & (raw["start"] != ABSENT)
    end = np.where(open_, np.maximum(last, raw["start"]), raw["end"])
    good = is_range & usable(np.where(is_range, raw["start"], ABSENT), end)
    lost = int((is_range & ~good).sum())
    chosen = np.flatnonzero(good)
    chosen = chosen[np.lexsort((-end[chosen], raw["start"][chosen], raw["globalTid"][chosen]))]
    dropped = [f"{lost} NVTX ranges have impossible times and are left out"] if lost else []
    return Ranges(
        raw["start"][chosen], end[chosen], raw["globalTid"][chosen], [text[i] for i in chosen.tolist()],
        dropped, int((open_ & good).sum()),
    )  # fmt: skip


def _texts(database: Database, ids: Integers) -> list[str]:
    """The text of each event: its own, else the one its textId names."""
    strings = database.strings(ids)
    own = [row[0] for row in database.texts(RANGES, ("text",))] or [""] * len(ids)
    return [from_trace(mine or strings.get(i, "")) for mine, i in zip(own, ids.tolist(), strict=True)]


@dataclass
class Projection:
    """The open ranges at each call: `state` of a call indexes `open_ranges`, tuples of ranges, the outermost first."""

    state: Integers
    open_ranges: list[tuple[int, ...]]


def project(ranges: Ranges, calls: CudaCalls, wanted: Integers) -> Projection:
    """Sweep over the threads of the `wanted` calls (indices); other calls keep state 0, nothing open."""
    codes: dict[tuple[int, ...], int] = {_NOTHING_OPEN: 0}
    state = np.zeros(len(calls), np.int64)
    first, behind = _bounds(ranges.thread)
    wanted = np.unique(wanted)
    for thread, mine in _by_thread(calls.thread[wanted], wanted):
        if thread not in first or thread == ABSENT:
            continue
        low, high = first[thread], behind[thread]
        state[mine] = _sweep(ranges, low, high, calls.start[mine].tolist(), codes)
    return Projection(state, list(codes))


def _sweep(ranges: Ranges, low: int, high: int, moments: list[int], codes: dict[tuple[int, ...], int]) -> list[int]:
    """The code of the open ranges among `low` … `high` at each of the `moments`, which are in order."""
    starts, ends = ranges.start[low:high].tolist(), ranges.end[low:high].tolist()
    open_: list[int] = []
    soonest, following, code = 2**63, 0, 0
    found = []
    for moment in moments:
        changed = False
        while following < len(starts) and starts[following] <= moment:
            if ends[following] > moment:
                open_.append(following)
                soonest = min(soonest, ends[following])
                changed = True
            following += 1
        if soonest <= moment:
            open_ = [r for r in open_ if ends[r] > moment]
            soonest = min((ends[r] for r in open_), default=2**63)
            changed = True
        if changed:
            code = codes.setdefault(tuple(low + r for r in open_), len(codes))
        found.append(code)
    return found


def _bounds(thread: Integers) -> tuple[dict[int, int], dict[int, int]]:
    """Return where each thread's ranges begin, and where they end."""
    values, first, count = np.unique(thread, return_index=True, return_counts=True)
    begins = dict(zip(values.tolist(), first.tolist(), strict=True))
    return begins, dict(zip(values.tolist(), (first + count).tolist(), strict=True))


def _by_thread(thread: Integers, index: Integers) -> Iterator[tuple[int, Integers]]:
    for value in np.unique(thread).tolist():
        yield value, index[thread == value]


@dataclass
class StatePlaces:
    """The places of each state of a projection: path, step number, pass, module and operator; None where nothing
    does."""

    path: list[str | None]
    step: list[str | None]
    pass_: list[str | None]
    module: list[str | None]
    operator: list[str | None]


def places(ranges: Ranges, projection: Projection) -> StatePlaces:
    """The words of every state: those of the innermost range of each kind, of the outermost for the operator."""
    found = StatePlaces([], [], [], [], [])
    for open_ in projection.open_ranges:
        names = [ranges.name[r] for r in open_]
        shown = [cropped(n, _LONGEST) for n in names if not n.startswith(PREFIX)]
        found.path.append("/".join(shown) or None)
        found.step.append(_innermost(names, step_of))
        found.pass_.append(_innermost(names, pass_of))
        found.module.append(_innermost(names, module_of))
        found.operator.append(next((m[1] for n in names if (m := _OPERATOR.match(n))), None))
    return found


def _innermost(names: list[str], what: Callable[[str], str | None]) -> str | None:
    return next((said for name in reversed(names) if (said := what(name)) is not None), None)


@dataclass
class StepRanges:
    """Ranges of steps and passes, on the thread that runs the steps: their bounds, in order of time."""

    steps: Steps
    step_names: list[str]
    passes: Steps
    pass_names: list[str]
    process: int


def find_marks(ranges: Ranges) -> StepRanges:
    """The step and pass ranges of the thread with most steps (with most passes, without steps)."""
    steps, passes = ranges.naming(step_of, STEP), ranges.naming(pass_of, PASS)
    lane = _busiest(ranges.thread[steps if len(steps) else passes])
    steps, passes = (_outer(ranges, found[ranges.thread[found] == lane]) for found in (steps, passes))
    return StepRanges(
        Steps(ranges.start[steps], ranges.end[steps], lane, bool(len(steps))),
        [step_of(ranges.name[i]) or "" for i in steps.tolist()],
        Steps(ranges.start[passes], ranges.end[passes], lane, bool(len(passes))),
        [pass_of(ranges.name[i]) or "" for i in passes.tolist()],
        int(process_of(np.array([lane]))[0]),
    )


def _outer(ranges: Ranges, found: Integers) -> Integers:
    """Return those of the ranges `found`, of one thread in order of time, that are inside no other of them."""
    reach = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, ranges.end[found]))[:-1]
    return found[ranges.start[found] >= reach]


def _busiest(thread: Integers) -> int:
    if not len(thread):
        return ABSENT
    values, counts = np.unique(thread, return_counts=True)
    return int(values[counts.argmax()])


def summary(ranges: Ranges, projection: Projection, state: Integers, kernel: Any, length: Integers) -> list[dict]:
    """Per name of range: how often it was open, its time on the host, and its kernels with their time, largest first.

    `state` of each activity (−1: no launch), `kernel` whether it is one (or the replay of a graph), `length` in ns. A
    kernel counts once for a name, however often ranges of that name nest.
    """
    total: dict[str, dict[str, Any]] = {}
    for name, host_ns in zip(ranges.name, (ranges.end - ranges.start).tolist(), strict=True):
        entry = total.setdefault(
            name, {"name": cropped(name, _LONGEST), "count": 0, "host_ns": 0, "kernels": 0, "kernel_ns": 0}
        )
        entry["count"] += 1
        entry["host_ns"] += host_ns
    counted = kernel & (state >= 0)
    kernels = np.bincount(state[counted], minlength=len(projection.open_ranges))
    kernel_ns = np.bincount(state[counted], length[counted].astype(float), minlength=len(projection.open_ranges))
    for open_, count, ns in zip(projection.open_ranges, kernels.tolist(), kernel_ns.tolist(), strict=True):
        for name in {ranges.name[r] for r in open_}:
            total[name]["kernels"] += count
            total[name]["kernel_ns"] += int(ns)
    return sorted(total.values(), key=lambda entry: (-entry["kernel_ns"], -entry["host_ns"], entry["name"]))
