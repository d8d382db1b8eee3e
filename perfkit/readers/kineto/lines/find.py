"""From placed events to the lines of a trace: the column of the table, and the facts by line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.columns import Coded, Integers
from perfkit.errors import InputError
from perfkit.intervals import Union, stretches
from perfkit.readers.kineto.attribution.columns import Placed, place
from perfkit.readers.kineto.decode.read import TraceContent, read_events
from perfkit.readers.kineto.lines import compiled, line_times
from perfkit.readers.kineto.lines.calling import with_calling
from perfkit.readers.kineto.lines.join import Lined, Traced, by_other_step, by_own_stacks
from perfkit.readers.kineto.lines.stacks import stacks_of
from perfkit.readers.kineto.measure.gpu import at_work
from perfkit.readers.kineto.measure.stalls import conversions, uploads, waits_of


class TraceLines:
    """The lines of a trace, and how they were found: by its `own` stacks, or by a step of its own, `path`."""

    def __init__(self, events: TraceContent, placed: Placed, path: Path | None) -> None:
        self._events, self._placed = events, placed
        self._bytes: Mapping[int, float] | None = None
        self.problem = ""
        found = self._found(path)
        self._lined = with_calling(self._trace, found) if found is not None else None

    @cached_property
    def _trace(self) -> Traced:
        return Traced(self._events.host, self._placed.places, self._placed.steps)

    def _found(self, path: Path | None) -> Lined | None:
        stacks = stacks_of(self._events.host)
        if stacks is not None:
            return by_own_stacks(self._trace, stacks)
        if path is None:
            return None
        try:
            events = read_events(path, lambda name: False)
        except InputError as error:
            self.problem = f"There are no source lines: {error.message}"
            return None
        stacks = stacks_of(events.host)
        if stacks is None:
            self.problem = f"There are no source lines: {path.name} lacks them."
            return None
        placed = place(events.host, events.device)
        other = Traced(events.host, placed.places, placed.steps)
        self._bytes = _allocated(events, by_own_stacks(other, stacks)) if len(events.memory) else None
        return by_other_step(self._trace, other, stacks)

    def add(
        self, columns: dict[str, Any], found: dict[str, Any], launched: Integers, reads: Any,
        sources: Coded | None = None,
    ) -> None:  # fmt: skip
        """Add the column `line` of the rows, which the host events `launched` made (−1: unknown), and `lines` to the
        facts. `reads` says by name which operators read a value; `sources` the lines of rows of compiled code."""
        if self._lined is None:
            return
        host, device, placed = self._events.host, self._events.device, self._placed
        of_rows = compiled.frames_of_rows(self._lined, launched, sources)
        columns["line"] = line_times.column(self._lined, of_rows)
        idle = None
        if len(device) and placed.on_gpu is not None:
            start, end, _ = stretches(at_work(host, device, placed.launch), placed.on_gpu.steps)
            idle = Union(start, end)
        launch = placed.launch if len(device) else None
        events, _ = waits_of(host, device, placed.steps, placed.places, launch, reads)
        copying = uploads(host, device, placed.places, launch)
        upload = np.array([event in copying for event in placed.places.operator[events].tolist()], bool)
        inside = np.asarray(columns["step"]) >= 0
        rows = launched[inside], of_rows[inside], columns["duration_ns"][inside]
        made, ns = conversions(host, placed.places.step >= 0)
        length = host.end - host.start
        waits = {
            "wait": (events[~upload], length[events[~upload]]),
            "upload": (events[upload], length[events[upload]]),
            "list": (made, ns),
        }
        found["lines"], found["unknown_lines"] = line_times.by_line(
            host, self._lined, idle, waits, self._bytes, rows, placed.steps.lane
        )


def _allocated(events: TraceContent, lined: Lined) -> dict[int, float]:
    """Bytes that each line of a step allocated, by its place in the frames."""
    host, memory = events.host, events.memory
    lanes = {thread: lane for lane, (_, thread) in enumerate(host.lanes)}
    found: dict[int, float] = defaultdict(float)
    for i in np.flatnonzero(memory.bytes > 0).tolist():
        lane, amount = lanes.get(memory.threads[memory.thread[i]]), float(memory.bytes[i])
        if lane is None:
            continue
        low, high = np.searchsorted(host.lane, [lane, lane + 1])
        at = round(memory.time_ns[i]) - events.about.first_ns
        event = int(low) + int(np.searchsorted(host.start[low:high], at, side="right")) - 1
        while event >= low and host.end[event] < at:
            event = int(host.parent[event])
        if event >= low and lined.frame[event] >= 0:
            found[int(lined.frame[event])] += amount
    return found
