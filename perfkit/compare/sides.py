"""The sides of a comparison: what was read of each, its report, and the values that are tested.

A side is one backend of a run folder, a profile, or one side of a measured comparison (`perfkit.compare.record`), whose
launches are pooled: the profiled steps of all of them are one kernel table.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from perfkit.analysis.report.analyse import analyse, analyse_table
from perfkit.analysis.report.rows import ceilings_of, in_steps, marked_for, steps_of
from perfkit.analysis.results import BackendReport, Report
from perfkit.analysis.roofline.excluded import judge_rows
from perfkit.analysis.roofline.roof import Judged
from perfkit.compare.record import Measurement, RecordedLaunch
from perfkit.run_folder import TIMED_ALONE, TIMED_APART, BackendRun, Manifest
from perfkit.statistics import series
from perfkit.table import KernelTable
from perfkit.tree.aligned import align_places
from perfkit.tree.places import Places, places_of

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.readers.run import Run

LAUNCH, ROUND, TURN, STEP = "launch", "round", "turn", "profiled step"
FEWEST_LAUNCHES = 6  # with fewer pairs the signed ranks cannot show anything
BLOCKS = 5  # into which the steps of a run without recorded turns are divided


@dataclass(frozen=True)
class Values:
    """Values of one metric, one a `unit`; `pairs` where those of two sides of the same origin belong together.

    `share` is the part of the error that a verdict on them may spend: 1 except for launches that could stop at several
    numbers.

    `steps` holds each launch's profiled steps, in order, where sides recorded theirs in turns.
    """

    values: list[float]
    unit: str
    pairs: bool = False
    origin: str = ""  # what was measured in turns with each other has one origin
    steps: Sequence[np.ndarray] = ()
    share: float = 1.0


@dataclass
class Side:
    """One side, ready to be compared. `table` is None where nothing was profiled."""

    label: str
    source: str
    report: Report
    backend: BackendReport
    table: KernelTable | None = None
    record: BackendRun | None = None
    manifest: Manifest | None = None
    step: Values | None = None
    memory: Values | None = None
    launch_of_step: Sequence[int] = ()  # of each profiled step, where launches were pooled
    flags: list[str] = field(default_factory=list)
    marked: pd.DataFrame | None = None  # rows that place those without a module, as in the report

    @cached_property
    def frame(self) -> pd.DataFrame | None:
        """The rows that count."""
        return in_steps(self.table) if self.table is not None else None

    @cached_property
    def untimed_calls(self) -> int:
        """The kernel calls of a profile that holds no duration at all; 0 of any other."""
        timed = self.table is None or len(in_steps(self.table))
        return 0 if timed or self.table is None else len(self.table.frame)

    @property
    def untimed_launches(self) -> float | None:
        """These calls a step; None of any other profile."""
        if self.table is None or not self.untimed_calls:
            return None
        return self.untimed_calls / steps_of(self.table.frame, self.table)

    @property
    def has_times(self) -> bool:
        """Return whether its kernel time is known: it was profiled, with durations."""
        return self.table is not None and not self.untimed_calls

    @cached_property
    def places(self) -> Places | None:
        """Return the places of the rows of `frame`, as in the report."""
        if self.frame is None:
            return None
        return places_of(self.frame if self.marked is None else align_places(self.frame, self.marked))

    @cached_property
    def judged(self) -> Judged | None:
        """The rows of `frame` by their roofs."""
        if self.frame is None or self.table is None:
            return None
        content = self.report.ceilings
        return judge_rows(self.frame, ceilings_of(content)[0], self.table.facts)[0]

    @property
    def steps(self) -> int:
        """Profiled steps."""
        return steps_of(self.frame, self.table) if self.frame is not None and self.table is not None else 0

    def per_unit(self, values: np.ndarray, mask: np.ndarray | None = None) -> Values:
        """Σ `values` over the rows in `mask`, by profiled step; the median of each launch's steps where pooled."""
        frame = self.frame
        if frame is None or not frame["step"].notna().any():
            return Values([], STEP)
        step = frame["step"].to_numpy(np.int64)
        chosen = np.ones(len(step), bool) if mask is None else mask
        names = np.unique(step)
        sums = np.bincount(np.searchsorted(names, step[chosen]), weights=values[chosen], minlength=len(names))
        if not len(self.launch_of_step):
            return Values(sums.tolist(), STEP)
        launch = np.asarray(self.launch_of_step)[names]
        by_launch = [sums[launch == one] for one in np.unique(launch)]
        origin, share = (self.step.origin, self.step.share) if self.step else ("", 1.0)
        return Values([float(np.median(one)) for one in by_launch], LAUNCH, True, origin, by_launch, share)


def profiled_steps(frame: pd.DataFrame) -> int:
    """Return the number of marked steps of a table's rows."""
    return int(frame["step"].nunique())


def of_run(run: Run, backend: str, label: str, source: str) -> Side:
    """One backend of a run. Raises `KeyError` for one that is missing."""
    return of_report(run, analyse(run), backend, label, source)


def of_report(run: Run, report: Report, backend: str, label: str, source: str) -> Side:
    """`of_run` with the report at hand."""
    found = next((b for b in report.backends if b.name == backend), None)
    record = run.manifest.backend(backend)
    if found is None or record is None:
        raise KeyError(backend)
    side = Side(label, source, report, found, run.tables.get(backend), record, run.manifest)
    side.marked = marked_for(run, backend)
    if record.samples_ns:
        side.step = _turns(record, source)
        side.flags += _flags(record.samples_ns, side.step.values, record.warmup_ns)
    if record.peak_memory_bytes:
        side.memory = Values([record.peak_memory_bytes], "run")
    return side


def of_table(table: KernelTable, path: str, label: str) -> Side:
    """A profile that belongs to no run."""
    report = analyse_table(table, None, path)
    return Side(label, path, report, report.backends[0], table)


def of_launches(
    measurement: Measurement, place: int, run: Run | None, tables: Sequence[KernelTable], source: str
) -> Side:
    """The `place`-th side of a measured comparison.

    `run` is its run folder or None; `tables` are those of its launches. Raises `KeyError` when the
    run lacks the backend.
    """
    measured = measurement.sides[place]
    table, launch_of_step = pooled(tables) if tables else (None, [])
    samples = [ns for launch in measurement.launches for t in launch.turns if t.side == place for ns in t.samples_ns]
    if run is not None:
        side = _of_pooled(run, measured.backend, measured.label, table, samples, source)
    elif table is not None:
        side = of_table(table, source, measured.label)
    else:
        report = Report(perfkit=measurement.perfkit, title=measured.label, source=source)
        report.backends = [BackendReport(name=measured.backend, status="ok")]
        side = Side(measured.label, source, report, report.backends[0])
    side.launch_of_step = launch_of_step
    side.step = dataclasses.replace(_units(measurement.launches, place, source), share=measurement.share)
    peaks = [launch.peak_memory_bytes[place] for launch in measurement.launches]
    known = [peak for peak in peaks if peak]
    side.memory = (
        Values(known, LAUNCH, True, source, share=measurement.share) if known and len(known) == len(peaks) else None
    )
    side.flags = _launch_flags(measurement.launches, place, samples, side.step.values)
    if side.table is None:
        side.backend.unusable = next((one.unusable for one in measurement.launches if one.unusable), "")
    return side


def _of_pooled(
    run: Run, backend: str, label: str, table: KernelTable | None, samples: list[float], source: str
) -> Side:
    """A side whose table and samples are those of all launches, and whose correctness is that of the run.

    The run's steps next to its own profile are another process's, minutes old: the launches' timed steps show what
    profiling added to the launches' steps. Nor are these timed as the run's were.
    """
    record = run.manifest.backend(backend)
    if record is None:
        raise KeyError(backend)
    warnings = [text for text in record.warnings if text not in (TIMED_ALONE, TIMED_APART)]
    unusable = "" if table is not None else record.unusable
    whole = msgspec.structs.replace(
        record, samples_ns=samples, beside_ns=[], turns=[], warnings=warnings, unusable=unusable
    )
    manifest = msgspec.structs.replace(run.manifest, backends=[whole])
    alone = dataclasses.replace(run, manifest=manifest, tables={backend: table} if table is not None else run.tables)
    report = analyse(alone, findings=False)  # what to do next is the run's to say
    return Side(label, source, report, report.backends[0], alone.tables.get(backend), whole, manifest)


def _units(launches: Sequence[RecordedLaunch], place: int, origin: str) -> Values:
    """The median step of each launch; of each round where there are too few launches to test."""
    by_launch: list[list[float]] = []
    by_round: list[list[float]] = []
    for launch in launches:
        rounds: dict[int, list[float]] = {}
        for turn in launch.turns:
            if turn.side == place:
                rounds.setdefault(turn.round, []).extend(turn.samples_ns)
        by_launch.append([ns for samples in rounds.values() for ns in samples])
        by_round += rounds.values()
    chosen, unit = (by_launch, LAUNCH) if len(by_launch) >= FEWEST_LAUNCHES else (by_round, ROUND)
    return Values([float(np.median(samples)) for samples in chosen if samples], unit, True, origin)


def _launch_flags(
    launches: Sequence[RecordedLaunch], place: int, samples: Sequence[float], units: Sequence[float]
) -> list[str]:
    found = []
    restless = sum(launch.steady_from[place] is None for launch in launches)
    if restless:
        found.append(f"in {restless} of {len(launches)} launches the warm-up did not become steady")
    void = [launch.unusable for launch in launches if launch.unusable]
    if void:
        found.append(f"the profiles of {len(void)} of {len(launches)} launches are unusable and left out: {void[0]}")
    return found + _odd_steps(samples, units, "from the first launches to the last")


def _odd_steps(samples: Sequence[float], units: Sequence[float], span: str) -> list[str]:
    """Return sentences about outliers among the steps, and about a drift over `span`."""
    odd, moved = series.outliers(samples), series.drift(units)
    found = [f"{len(odd)} of {len(samples)} steps are outliers: far above the median"] if odd else []
    return found if moved is None else [*found, f"the steps drifted by {moved:+.1%} {span}"]


def _turns(record: BackendRun, source: str) -> Values:
    """The median step of each turn; of `BLOCKS` blocks of steps in a row where the record has no turns."""
    samples = record.samples_ns
    sizes = record.turns if sum(record.turns) == len(samples) and len(record.turns) > 1 else _even(len(samples))
    edges = np.cumsum([0, *sizes])
    values = [float(np.median(samples[a:b])) for a, b in itertools.pairwise(edges)]
    return Values(values, TURN, False, source)


def _even(count: int) -> list[int]:
    blocks = min(BLOCKS, count)
    return [count // blocks + (i < count % blocks) for i in range(blocks)]


def _flags(samples: Sequence[float], units: Sequence[float], warmup: Sequence[float]) -> list[str]:
    """Return sentences about odd features of a series of steps."""
    found = _odd_steps(samples, units, "while they were measured")
    whole = [*warmup, *samples]
    if len(samples) >= 2 * series.STEADY:
        end = series.warmup_end(whole)
        if end is None:
            found.append("the steps did not become steady: it is not known that the warm-up was over")
        elif end > len(warmup):
            found.append(f"the first {end - len(warmup)} timed steps were still warm-up")
    return found


def pooled(tables: Sequence[KernelTable]) -> tuple[KernelTable, list[int]]:
    """One table of the steps of all `tables`, one after another, and for each step the table that it is from.

    Facts that add up over steps are added up; those that hold for one capture only are left out.
    """
    import pandas as pd

    frames, launch_of_step, order, start = [], list[int](), 0, 0.0
    for number, table in enumerate(tables):
        frame = table.frame.copy()
        steps = int(table.facts.get("steps") or profiled_steps(frame))
        frame["step"] = frame["step"] + len(launch_of_step)
        frame["order"] = frame["order"] + order
        frame["start_ns"] = frame["start_ns"] + start
        order += int(frame["order"].max()) - order + 1 if len(frame) else 0
        start = float((frame["start_ns"] + frame["duration_ns"]).max()) if len(frame) else start
        start = start if start == start else 0.0
        launch_of_step += [number] * steps
        frames.append(frame)
    from perfkit.table import conform

    whole = conform(pd.concat(frames, ignore_index=True))
    warnings = list(dict.fromkeys(w for table in tables for w in table.warnings))
    return KernelTable(whole, warnings, tables[0].source, _facts([t.facts for t in tables])), launch_of_step


_LISTS = ("step_ns", "busy_ns", "gaps", "list_tensors")
_SUMS = ("steps", "events")
_KEPT = ("devices", "gpus", "ceilings", "ceilings_hold")


def _facts(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {name: facts[0][name] for name in _KEPT if name in facts[0]}
    made |= {name: [v for f in facts for v in f.get(name) or []] for name in _LISTS if any(f.get(name) for f in facts)}
    made |= {name: sum(f.get(name) or 0 for f in facts) for name in _SUMS if any(f.get(name) for f in facts)}
    estimates = [f["profiler_estimate"] for f in facts if f.get("profiler_estimate")]
    if len(estimates) == len(facts):
        made["profiler_estimate"] = {
            "events": sum(e["events"] for e in estimates),
            "event_cost_ns": float(np.median([e["event_cost_ns"] for e in estimates])),
        }
    return made
