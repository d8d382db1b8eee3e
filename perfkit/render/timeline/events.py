"""The events of a timeline as columns: spans, the host's threads, and the rows of the kernel table, track by track."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit import profile_names
from perfkit.analysis.timeline.layout import OPERATOR, PASS, STEP, Slice, SliceColumns, Timeline
from perfkit.analysis.timeline.properties import Column
from perfkit.render.cells import clean
from perfkit.render.timeline.fact_columns import FactColumns

if TYPE_CHECKING:
    from perfkit.readers.kineto.recorded import HostTrace

_LONGEST = 4000  # characters of a name
_HOST = ("cpu_op", "user_annotation", "runtime", "python_function", "overhead")  # as the reader numbers them
CATEGORIES = (*_HOST, STEP, PASS, "gpu_kernel", "memcpy", "memset", "other")
_CODE = {name: code for code, name in enumerate(CATEGORIES)}
_MOST_CODES = 2**15 - 1  # that an int16 counts
_FARTHEST = 2.0**52  # ns; beyond lies damage, and sums that are not exact
NONE = -1


class WordTable:
    """Distinct words in the order of their first use, each cleaned once; −1 for those beyond `most`."""

    def __init__(self, most: int = 2**31 - 1) -> None:
        self._most = most
        self._codes: dict[str, int] = {}
        self._of: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        code = self._of.get(text)
        if code is None:
            word = clean(text, _LONGEST)
            full = word not in self._codes and len(self._codes) == self._most
            code = self._of[text] = NONE if full else self._codes.setdefault(word, len(self._codes))
        return code

    @property
    def values(self) -> list[str]:
        """The words, by code."""
        return list(self._codes)


@dataclass
class EventColumns:
    """Events as columns of equal length, in any order; −1 and NaN mean none."""

    lane: np.ndarray
    depth: np.ndarray
    start: np.ndarray
    duration: np.ndarray
    name: np.ndarray
    category: np.ndarray
    family: np.ndarray
    pass_: np.ndarray
    efficiency: np.ndarray
    row: np.ndarray
    launch: np.ndarray  # index of the launching event among the host's, −1 for none


@dataclass
class DrawnEvents:
    """All events by track, then start; `launch` is an index of an event, −1 for none."""

    names: WordTable = field(default_factory=WordTable)
    families: WordTable = field(default_factory=lambda: WordTable(_MOST_CODES))
    passes: WordTable = field(default_factory=lambda: WordTable(_MOST_CODES))
    lanes: list[tuple[str, str]] = field(default_factory=list)
    tracks: list[list[int]] = field(default_factory=list)
    _columns: dict[str, np.ndarray] = field(default_factory=dict)

    def columns(self) -> dict[str, np.ndarray]:
        """start, duration (ns), name, category, family, pass, efficiency (a ratio), row of the facts, launch."""
        return self._columns


def collect(timeline: Timeline, host: HostTrace | None, facts: FactColumns) -> DrawnEvents:
    """The events of `timeline`, and of `host` where it is the trace that the table was made of."""
    events = DrawnEvents()
    rows = rows_of(
        timeline.columns(), events, facts
    )  # before the spans: facts are shown in the order in which they come
    spans = spans_of(timeline.spans, events, facts)
    if abs(timeline.origin_ns) <= _FARTHEST:
        rows.start += timeline.origin_ns  # to the trace's time, which is the host's
        spans.start += timeline.origin_ns
    parts, threads_named = [spans], []
    if host is not None and len(host) and timeline.measured:
        order = _lane_order(host)
        threads = _threads(host, order, events)
        if len(rows.row) and (rows.category == _CODE[OPERATOR]).all():
            if _onto_host(rows, threads):
                rows = _none(rows)  # each row is an operator that the threads show with what is inside it
        else:
            rows.launch = _launches(rows.start, host)
        threads_named = [(host.lanes[lane], "thread") for lane in order]
        parts.append(threads)
    parts.append(rows)
    row_lanes = timeline.lanes[1:] if len(rows.row) else []
    for part in parts[1:-1]:
        part.lane += len(row_lanes)  # kernels stand above the threads, which may be deep
    kinds = [kind_of_lane(name) for name in row_lanes]
    events.lanes = [(timeline.lanes[0], "spans"), *zip(row_lanes, kinds, strict=True), *threads_named]
    arrange(parts, events)
    return events


def kind_of_lane(name: str) -> str:
    """Return the kind of a lane of rows: thread, or stream."""
    return "thread" if " thread " in f" {name} " else "stream"


def rows_of(rows: SliceColumns, events: DrawnEvents, facts: FactColumns) -> EventColumns:
    """The rows of a kernel table as a part of the timeline; `facts` takes their columns."""
    n = len(rows.lane)
    family, passes = (rows.facts.get(name, [None] * n) for name in ("family", "pass"))
    efficiency = np.asarray(rows.facts.get("% of roof", np.full(n, np.nan)), float)
    first = facts.add(rows.facts, n)
    return EventColumns(
        np.array(rows.lane, np.int64), np.zeros(n, np.int32), rows.start_ns.copy(), rows.duration_ns.copy(),
        _coded(rows.name, events.names, np.int32), _kinds(rows.kind), _coded(family, events.families, np.int16),
        _coded(passes, events.passes, np.int16), efficiency.astype(np.float32) / 100,
        np.arange(first, first + n, dtype=np.int32), np.full(n, NONE, np.int64),
    )  # fmt: skip


def _coded(words: Iterable[str | None], codes: WordTable, kind: Any) -> np.ndarray:
    words = list(words)
    code = {word: codes(word) if word else NONE for word in dict.fromkeys(words)}
    return np.array([code[word] for word in words], kind)


def _kinds(kinds: list[str]) -> np.ndarray:
    return np.array([_CODE.get(kind, _CODE["other"]) for kind in kinds], np.uint8)


def spans_of(spans: list[Slice], events: DrawnEvents, facts: FactColumns) -> EventColumns:
    """Steps and, a row lower, passes: few, so they come as slices."""
    known = dict.fromkeys(name for s in spans for name in s.facts)
    columns: dict[str, Column] = {name: [s.facts.get(name) for s in spans] for name in known}
    names = [f"step {s.name}" if s.kind == STEP else s.name for s in spans]
    start, duration = (np.array([getattr(s, of) for s in spans], float) for of in ("start_ns", "duration_ns"))
    part = rows_of(
        SliceColumns([s.lane for s in spans], names, [s.kind for s in spans], start, duration, columns), events, facts
    )
    part.depth = (part.category == _CODE[PASS]).astype(np.int32)
    part.pass_ = _coded([s.name if s.kind == PASS else None for s in spans], events.passes, np.int16)
    return part


def _lane_order(host: HostTrace) -> np.ndarray:
    """The host's lanes by their first event: the thread that runs the steps stands above those that serve it."""
    first = np.full(len(host.lanes), np.iinfo(np.int64).max)
    np.minimum.at(first, host.lane, host.start)
    return np.argsort(first, kind="stable")


def _threads(host: HostTrace, order: np.ndarray, events: DrawnEvents) -> EventColumns:
    names = np.array([events.names(name) for name in host.names] or [0], np.int32)
    n = len(host)
    return EventColumns(
        np.argsort(order)[host.lane] + 1, host.depth, host.start.astype(float), (host.end - host.start).astype(float),
        names[host.name], host.kind.astype(np.uint8), np.full(n, NONE, np.int16), _host_passes(host, events),
        np.full(n, np.nan, np.float32), np.full(n, NONE, np.int32), np.full(n, NONE, np.int64),
    )  # fmt: skip


def _host_passes(host: HostTrace, events: DrawnEvents) -> np.ndarray:
    """The pass during which an event began, by perfkit's ranges on whichever thread: backward runs on another one."""
    marks = np.array([name.startswith(profile_names.PASS) for name in host.names] or [False])
    ranges = np.flatnonzero(marks[host.name])
    ranges = ranges[np.argsort(host.start[ranges], kind="stable")]
    if not len(ranges):
        return np.full(len(host), NONE, np.int16)
    words = [host.names[code].removeprefix(profile_names.PASS) for code in host.name[ranges].tolist()]
    codes = np.array([events.passes(word) for word in words], np.int16)
    at = np.searchsorted(host.start[ranges], host.start, side="right") - 1
    inside = (at >= 0) & (host.start < host.end[ranges][np.maximum(at, 0)])
    return np.where(inside, codes[np.maximum(at, 0)], NONE).astype(np.int16)


def _launches(start: np.ndarray, host: HostTrace) -> np.ndarray:
    """The host event that launched each row; rows and the GPU's activities of the trace are both sorted by start."""
    theirs = host.device_start.astype(float)
    if not len(theirs):
        return np.full(len(start), NONE, np.int64)
    nth = np.arange(len(start)) - np.searchsorted(start, start, side="left")  # among rows that start at once
    at = np.searchsorted(theirs, start, side="left") + nth
    inside = np.minimum(at, len(theirs) - 1)
    return np.where((at < len(theirs)) & (theirs[inside] == start), host.launched_by[inside], NONE)


def _onto_host(rows: EventColumns, threads: EventColumns) -> bool:
    """Give the facts of rows on the CPU to the events that they are; True when every row found its event."""
    operators = np.flatnonzero(threads.category == _CODE["cpu_op"])
    keys = zip(threads.start[operators].tolist(), threads.name[operators].tolist(), strict=True)
    place = dict(zip(keys, operators.tolist(), strict=True))
    at = [place.get(key, NONE) for key in zip(rows.start.tolist(), rows.name.tolist(), strict=True)]
    if NONE in at:
        return False
    for column in ("family", "pass_", "efficiency", "row"):
        getattr(threads, column)[at] = getattr(rows, column)
    return True


def _none(part: EventColumns) -> EventColumns:
    return EventColumns(**{name: values[:0] for name, values in vars(part).items()})


def arrange(parts: list[EventColumns], events: DrawnEvents) -> np.ndarray:
    """Sort the events by lane, depth and start, find the tracks, and turn launches into numbers of events.

    Gives the number of each event, in the order of `parts`.
    """
    joined = {name: np.concatenate([getattr(p, name) for p in parts]) for name in vars(parts[0])}
    order = np.lexsort((joined["start"], joined["depth"], joined["lane"]))
    offset = len(parts[0].row)  # the host's events stand after the spans
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    launch = joined["launch"]
    launch = np.where(launch >= 0, place[np.minimum(launch + offset, len(order) - 1)], NONE) if len(order) else launch
    c = {name: values[order] for name, values in joined.items()} | {"launch": launch[order]}
    start = c["start"] - (c["start"].min() if len(order) else 0.0)
    track = np.stack([c["lane"], c["depth"]], axis=1)
    first = np.flatnonzero(np.r_[True, (track[1:] != track[:-1]).any(axis=1)]) if len(order) else np.empty(0, np.int64)
    count = np.diff(np.append(first, len(order)))
    events.tracks = [[*track[f].tolist(), int(f), int(n)] for f, n in zip(first, count, strict=True)]
    events._columns = {
        "start": start, "duration": c["duration"], "name": c["name"], "category": c["category"],
        "family": c["family"], "pass": c["pass_"], "efficiency": c["efficiency"], "row": c["row"],
        "launch": c["launch"].astype(np.int32),
    }  # fmt: skip
    return place
