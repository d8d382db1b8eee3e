"""A kernel table laid out in time: steps and passes as spans, a lane a stream or thread, the facts of every kernel.

Slices of one lane never overlap partly, for no viewer can draw that: steps and passes nest in a lane of their own, and
kernels of a stream that overlap go to further lanes of that stream. Times are whole ns from the first event drawn.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from perfkit.analysis.roofline.excluded import judge_rows
from perfkit.analysis.roofline.roof import BOUNDS, Judged, Reals
from perfkit.analysis.timeline.properties import Column, of_columns, of_rows
from perfkit.hardware.ceilings import Ceilings
from perfkit.hardware.peaks import ceilings_on_paper
from perfkit.table import KernelTable

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.readers.run import Run

STEP, PASS, COPY, FILL, OPERATOR, KERNEL = "step", "pass", "memcpy", "memset", "cpu_op", "gpu_kernel"
SPANS = "steps and passes"  # the first lane of every timeline
_LATEST = 2.0**53  # ns, 104 days: up to here whole numbers are exact
_CHUNK = 10_000  # rows whose facts are in memory at once


@dataclass(frozen=True)
class Slice:
    """Something that lasts: a step, a pass (`name` is its number or word), or a row of the table.

    `kind` is one of the constants above, `facts` what perfkit knows of it, only what is known.
    """

    lane: int
    name: str
    kind: str
    start_ns: float
    duration_ns: float
    facts: dict[str, Any]


@dataclass(frozen=True)
class SliceColumns:
    """Slices as columns of equal length; `facts` as `perfkit.analysis.timeline.properties.of_columns` gives them."""

    lane: list[int]
    name: list[str]
    kind: list[str]
    start_ns: Reals
    duration_ns: Reals
    facts: dict[str, Column]


@dataclass
class Timeline:
    """One kernel table in time. `lanes` are the lanes' names; `notes` what a reader of the picture must know.

    `measured` is False where the table has no start times: then rows are laid end to end in launch order. `origin_ns`
    is the table's time at which the timeline begins, `later_ns` how much later that is than in the first timeline of
    the same trace; `places` are the rows of the table that are drawn, by start.
    """

    name: str
    lanes: list[str]
    spans: list[Slice]
    notes: list[str]
    measured: bool
    ceilings: str = ""
    origin_ns: float = 0.0
    places: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    later_ns: float = 0.0
    _frame: pd.DataFrame | None = None
    _lane: list[int] = field(default_factory=list)
    _judged: Judged | None = None

    def __len__(self) -> int:
        """Return the number of rows that are drawn."""
        return len(self._lane)

    @property
    def bars(self) -> tuple[np.ndarray, Reals, Reals]:
        """Lane, start and duration of each row drawn."""
        if self._frame is None:
            return np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
        return np.array(self._lane, np.int64), *(self._frame[c].to_numpy(float) for c in ("start_ns", "duration_ns"))

    def rows(self) -> Iterator[Slice]:
        """A slice a row, by start; made some at a time, for a table may have millions."""
        for first in range(0, len(self), _CHUNK):
            yield from self._rows(slice(first, first + _CHUNK))

    def _rows(self, part: slice) -> Iterator[Slice]:
        assert self._frame is not None and self._judged is not None  # a timeline with rows has both
        frame = self._frame.iloc[part]
        columns = (self._lane[part], frame["name"], _kinds(frame), frame["start_ns"], frame["duration_ns"])
        for values, facts in zip(zip(*columns, strict=True), of_rows(frame, _part(self._judged, part)), strict=True):
            yield Slice(*values, facts)

    def columns(self) -> SliceColumns:
        """All rows at once, by start."""
        if self._frame is None or self._judged is None:
            return SliceColumns([], [], [], np.empty(0), np.empty(0), {})
        return SliceColumns(
            self._lane, self._frame["name"].tolist(), _kinds(self._frame), self._frame["start_ns"].to_numpy(float),
            self._frame["duration_ns"].to_numpy(float), of_columns(self._frame, self._judged),
        )  # fmt: skip


def _kinds(frame: pd.DataFrame) -> list[str]:
    return frame["kind"].astype(object).where(frame["kind"].notna(), KERNEL).tolist()


def timelines(source: Run | KernelTable, name: str) -> list[Timeline]:
    """A timeline a kernel table in what `perfkit.readers.read` gave; `name` is that of a table alone.

    Kernels are judged by the run's ceilings, or by those that the profile holds, or by the datasheet of its device.
    """
    if isinstance(source, KernelTable):
        held = _ceilings(source.facts.get("ceilings"))
        return [timeline(name, source, held or ceilings_on_paper(source.facts.get("gpus") or []))]
    ceilings = _ceilings(source.ceilings)
    return [timeline(backend, table, ceilings) for backend, table in source.tables.items()]


def _ceilings(content: dict[str, Any] | None) -> Ceilings | None:
    """Ceilings from plain data; None if missing."""
    try:
        return msgspec.convert(content, Ceilings) if content else None
    except msgspec.ValidationError:
        return None


def timeline(name: str, table: KernelTable, ceilings: Ceilings | None) -> Timeline:
    """Lay `table` out in time; rows without a duration cannot be drawn and are counted in the notes."""
    notes = list(table.warnings)
    frame = table.frame.reset_index(drop=True)
    frame = frame[frame["duration_ns"].notna()]
    if len(frame) < len(table):
        notes.append(_not_drawn(len(table) - len(frame), "duration"))
    started = frame["start_ns"].notna()
    measured = bool(started.any())
    if measured and not started.all():
        notes.append(_not_drawn(int((~started).sum()), "start time"))
        frame = frame[started]
    if not measured:
        notes.append("the profile has no start times: kernels are laid end to end in launch order")
    if not len(frame):
        return Timeline(name, [SPANS], [], notes, measured)
    judged_by, _ = judge_rows(frame, ceilings, table.facts)
    origin = float(frame["start_ns"].min()) if measured else 0.0
    places = frame.index.to_numpy()
    frame = _in_time(frame, measured)
    places = places[frame.index.to_numpy()]
    judged = _part(judged_by, frame.index.to_numpy())
    lane, lanes = _lanes(frame)
    spans = _spans(frame, judged)
    about = ""
    if ceilings:
        made = "by its datasheet" if ceilings.on_paper else f"measured {ceilings.measured_at}"
        about = f"{ceilings.device_name or ceilings.device}, {made}"
    return Timeline(name, lanes, spans, notes, measured, about, origin, places, 0.0, frame, lane, judged)


def _not_drawn(rows: int, lacking: str) -> str:
    return f"1 row has no {lacking} and is not drawn" if rows == 1 else f"{rows} rows have no {lacking}: not drawn"


def _in_time(frame: pd.DataFrame, measured: bool) -> pd.DataFrame:
    """The rows by start, in whole ns from the first; the index holds each row's place in `frame`."""
    frame = frame.reset_index(drop=True)
    length = frame["duration_ns"].to_numpy(float)
    with np.errstate(over="ignore"):  # a damaged profile may say that a kernel ran for ages
        if measured:
            start = frame["start_ns"].to_numpy(float)
        else:
            order = frame["order"].to_numpy(np.int64).argsort(kind="stable")
            start = np.empty(len(frame))
            start[order] = np.concatenate([[0.0], np.cumsum(length[order])[:-1]])
        begin = np.minimum(np.rint(start - start.min()), _LATEST)
        end = np.minimum(np.rint(start - start.min() + length), _LATEST)
    return frame.assign(start_ns=begin, duration_ns=end - begin).sort_values(["start_ns", "order"], kind="stable")


def _part(judged: Judged, rows: np.ndarray | slice) -> Judged:
    """`judged` of some rows, in their order."""
    fields: dict[str, Any] = {n: v[rows] if isinstance(v, np.ndarray) else v for n, v in vars(judged).items()}
    return Judged(**fields)


def _lanes(frame: pd.DataFrame) -> tuple[list[int], list[str]]:
    """The lane of each row (1 and up) and the names of all lanes, by their first row; `frame` is sorted by start."""
    start = frame["start_ns"].to_numpy(float)
    end = start + frame["duration_ns"].to_numpy(float)
    again = np.zeros(len(frame), np.int64)  # which of its stream's lanes a row takes
    streams = frame.groupby(["device", "stream"], sort=False, dropna=False, observed=True).indices
    for rows in streams.values():
        if (start[rows][1:] < end[rows][:-1]).any():
            free = _Stream()
            times = zip(start[rows].tolist(), end[rows].tolist(), strict=True)
            again[rows] = [free.take(begin, stop) for begin, stop in times]
    lane = np.zeros(len(frame), np.int64)
    found = [(rows[again[rows] == nth], key, nth) for key, rows in streams.items() for nth in np.unique(again[rows])]
    names = [SPANS]
    for rows, (device, number), nth in sorted(found, key=lambda one: int(one[0][0])):
        lane[rows] = len(names)
        names.append(_lane_name(_or_none(device), _or_none(number), int(nth)))
    return lane.tolist(), names


def _or_none(value: Any) -> Any:
    from pandas import isna

    return None if isna(value) else value


class _Stream:
    """The lanes of one stream: each takes a slice when it is free, the lowest first."""

    def __init__(self) -> None:
        self._lanes = 0
        self._busy: list[tuple[float, int]] = []
        self._free: list[int] = []

    def take(self, start: float, end: float) -> int:
        """The lane for [start, end), perhaps a new one; slices come by start."""
        while self._busy and self._busy[0][0] <= start:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        lane = heapq.heappop(self._free) if self._free else self._lanes
        self._lanes = max(self._lanes, lane + 1)
        heapq.heappush(self._busy, (end, lane))
        return lane


def _lane_name(device: str | None, number: int | None, again: int) -> str:
    kind = "thread" if device == "cpu" else "stream"
    words = [device or "", f"{kind} {int(number)}" if number is not None else "", f"({again + 1})" if again else ""]
    return " ".join(filter(None, words)) or "kernels"


def _spans(frame: pd.DataFrame, judged: Judged) -> list[Slice]:
    """Steps, and inside them runs of rows of the same pass."""
    start = frame["start_ns"].to_numpy(float)
    end = start + frame["duration_ns"].to_numpy(float)
    step = frame["step"].fillna(-1).to_numpy(np.int64)
    steps = _runs(start, end, step, np.flatnonzero(step >= 0), whole=True)
    pass_code, pass_names = frame["pass"].cat.codes.to_numpy(np.int64), list(frame["pass"].cat.categories)
    number = np.unique(step, return_inverse=True)[1]
    passes = _runs(start, end, number * (len(pass_names) + 1) + pass_code, np.flatnonzero(pass_code >= 0), whole=False)
    edges = np.array([s for s, _, _ in steps]), np.array([e for _, e, _ in steps])
    slices = [
        Slice(0, str(step[rows[0]]), STEP, begin, stop - begin, _sums(judged, rows)) for begin, stop, rows in steps
    ]
    for begin, stop, rows in passes:
        stop = _inside(begin, stop, *edges)
        if stop > begin:
            name = str(pass_names[pass_code[rows[0]]])
            slices.append(Slice(0, name, PASS, begin, stop - begin, _sums(judged, rows)))
    return slices


def _runs(
    start: Reals, end: Reals, code: np.ndarray, rows: np.ndarray, whole: bool
) -> list[tuple[float, float, np.ndarray]]:
    """(start, end, rows) of every run of `rows` with one code; with `whole` all rows of a code are one run.

    An end never passes the start of the next run.
    """
    if not len(rows):
        return []
    if whole:
        rows = rows[np.argsort(code[rows], kind="stable")]
    cuts = np.flatnonzero(np.diff(code[rows])) + 1
    runs = sorted(np.split(rows, cuts), key=lambda run: float(start[run[0]]))
    begins = [float(start[run].min()) for run in runs]
    limits = [*begins[1:], np.inf]
    return [(b, float(min(end[run].max(), limit)), run) for b, limit, run in zip(begins, limits, runs, strict=True)]


def _inside(begin: float, stop: float, starts: Reals, ends: Reals) -> float:
    """`stop`, cut to the end of the step around `begin` and to the start of the next."""
    at = int(np.searchsorted(starts, begin, side="right")) - 1
    if at >= 0 and begin < ends[at]:
        stop = min(stop, float(ends[at]))
    return min(stop, float(starts[at + 1])) if at + 1 < len(starts) else stop


def _sums(judged: Judged, rows: np.ndarray) -> dict[str, Any]:
    """Return the sums of the rows of a span; efficiency is Σ roof time / Σ time of the rows that have a roof."""
    known = judged.judged[rows]
    facts: dict[str, Any] = {"kernels": len(rows), "kernel ns": float(judged.time[rows].sum())}
    for name, values in (("FLOP", judged.flop[rows]), ("bytes", judged.bytes[rows])):
        if np.isfinite(values).any():
            facts[name] = float(np.nansum(values))
    time = float(judged.time[rows][known].sum())
    if time:
        roof = judged.roof[rows][known]
        facts["% of roof"] = round(float(roof.sum()) / time * 100, 1)
        facts["headroom ns"] = float(judged.headroom[rows][known].sum())
        facts["bound by"] = BOUNDS[int(np.bincount(judged.bound[rows][known], weights=roof).argmax())]
    return facts
