"""Judges of `gpu_check.py`: figures against their witnesses, within the limits of this file. Needs no GPU."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KERNEL_TIME, STEP_TIME, NCU_TIME, COUNTED, LARGEST = 0.001, 0.03, 0.10, 0.97, 10
POWER = 0.10  # of the mean draw
TOLD, SAME_WORK = 0.90, 0.01  # of a captured graph: of its kernel time, and of the FLOP of the step that it holds
OTHER_PROCESS, OTHER_HOST_PACE = 0.15, 1.0  # of a step's time: a host's pace differs from process to process
TOO_NOISY = 0.3  # of a figure's interval: it would say nothing


@dataclass(frozen=True)
class Check:
    """One thing that was checked: a figure, its limit, and whether it holds."""

    name: str
    ok: bool
    figure: float | None = None
    limit: float | None = None
    note: str = ""

    def line(self) -> str:
        """The check as a line: whether it holds, its figure and the limit, and a note."""
        figure = "" if self.figure is None else f"{self.figure:.4%} (limit {self.limit:.1%})  "
        return f"{'holds' if self.ok else 'FAILS':6} {self.name:42} {figure}{self.note}"


def within(name: str, value: float | None, witness: float | None, limit: float, note: str = "") -> Check:
    """Return whether `value` is within `limit` (a share) of `witness`; a missing or zero value never is."""
    if not value or not witness or not math.isfinite(value) or not math.isfinite(witness):
        return Check(name, False, None, limit, f"{value} against {witness}")
    figure = abs(value / witness - 1)
    return Check(name, figure <= limit, figure, limit, note or f"{value / 1e3:.1f} µs against {witness / 1e3:.1f}")


def trace_checks(name: str, backend: Mapping[str, Any]) -> Check:
    """Return whether every check of the backend's profile that applies holds."""
    found = backend.get("trace_checks") or []
    failed = [f"{c['says']}: {c['sentence']}" for c in found if c["holds"] is False]
    applied = sum(c["holds"] is not None for c in found)
    note = "; ".join(failed) or backend.get("unusable", "") or f"{applied} of {len(found)} apply, all hold"
    return Check(f"trace checks, {name}", bool(applied) and not failed and not backend.get("unusable"), note=note)


def step_times(
    name: str, run: float, kernels: float, loop: Sequence[Sequence[float]], inside: Sequence[Sequence[float]],
    own: Sequence[Sequence[float]],
) -> Iterator[Check]:  # fmt: skip
    """Turns of perfkit's loop, of events around the same steps, and of a loop of its own; then the run's step time.

    `run` is the step time that the run printed and `kernels` its kernel time, both in ns: a step whose kernels take
    less than half of it is the host's, whose pace is each process's own.
    """
    same = [ours / theirs for turns in zip(loop, inside, strict=True) for ours, theirs in zip(*turns, strict=True)]
    yield within(f"step time, {name}", statistics.median(same), 1.0, STEP_TIME, _range(same))
    turns = [statistics.median(ours) / statistics.median(theirs) for ours, theirs in zip(loop, own, strict=True)]
    yield by_chance(f"step time in a loop of its own, {name}", turns, STEP_TIME)
    every = statistics.median(step for turn in own for step in turn)
    limit = OTHER_PROCESS if kernels > every / 2 else OTHER_HOST_PACE
    longer, shorter = (run, every) if run >= every else (every, run)
    note = f"{run / 1e3:.1f} µs, {every / 1e3:.1f} in another process"
    yield within(f"step time of the run, {name}", longer, shorter, limit, note)


def by_chance(name: str, ratios: Sequence[float], limit: float) -> Check:
    """Return whether the median ratio is within `limit` of 1, except for what chance explains (95 %), which must not be
    much."""
    ranked, middle = sorted(ratios), statistics.median(ratios)
    reach = math.ceil(0.98 * math.sqrt(len(ranked)))
    low, high = ranked[max(0, len(ranked) // 2 - reach)], ranked[min(len(ranked) - 1, (len(ranked) - 1) // 2 + reach)]
    ok = low <= 1 + limit and high >= 1 - limit and high - low <= TOO_NOISY
    return Check(name, ok, abs(middle - 1), limit, f"{middle:.3f} of it, by chance {low:.3f} to {high:.3f}")


def _range(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.3f} to {max(ratios):.3f} in {len(ratios)} steps"


def durations(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], list[float]]:
    """Durations in ns by function, grid and block."""
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        shape = tuple(int(row[f"{kind}_{axis}"]) for kind in ("grid", "block") for axis in "xyz")
        found[(row["short_name"], *shape)].append(float(row["duration_ns"]))
    return found


def against_ncu(
    name: str, trace: dict[tuple[Any, ...], list[float]], counted: dict[tuple[Any, ...], list[float]]
) -> Iterator[Check]:
    """The longest kernels of the trace that ncu saw too: median durations of both."""
    shared = sorted(trace.keys() & counted.keys(), key=lambda key: -statistics.median(trace[key]))[:LARGEST]
    if not shared:
        yield Check(f"ncu, {name}", False, note="no kernel is in both")
    for key in shared:
        ours, theirs = statistics.median(trace[key]), statistics.median(counted[key])
        note = f"{ours / 1e3:.1f} µs against {theirs / 1e3:.1f}, the median of {len(counted[key])}"
        yield within(f"ncu, {name}, {key[0][:24]}", ours, theirs, NCU_TIME, note)
