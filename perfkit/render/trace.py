"""Timelines as one Chrome trace (JSON): a process a backend or rank, a thread a lane, perfkit's facts as arguments.

Perfetto, chrome://tracing and readers of torch.profiler's traces open it: categories, `ProfilerStep#` and
`perfkit:pass:` are those of perfkit's own captures. Times are µs with three digits. Events are encoded one at a time:
memory does not grow with the file.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

import perfkit
from perfkit import profile_names
from perfkit.analysis.timeline.layout import COPY, FILL, OPERATOR, PASS, STEP, Slice, Timeline
from perfkit.render.cells import NOTE_LIMIT, clean
from perfkit.run_folder import written_whole

NAME_LIMIT = 4000  # characters of a name or an argument; names of templates have over a thousand
_CATEGORIES = {
    STEP: "user_annotation", PASS: "user_annotation", OPERATOR: "cpu_op", COPY: "gpu_memcpy", FILL: "gpu_memset",
}  # fmt: skip
_PREFIXES = {STEP: profile_names.PROFILER_STEP, PASS: profile_names.PASS}
_COMPRESSION = 5


class Arrow(NamedTuple):
    """An arrow from one row to another, each given as (place of the timeline, place of the row in it)."""

    source: tuple[int, int]
    target: tuple[int, int]


def write(path: Path, timelines: Iterable[Timeline], source: str, arrows: Iterable[Arrow] = ()) -> None:
    """Write one trace through a temporary name; compressed when the name ends in .gz. `arrows` become flows.

    Raises `RunFailed` when the file cannot be written; what was there before is then still whole.
    """
    with written_whole(path) as temporary, temporary.open("wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as packed:
                _write(packed, list(timelines), source, arrows)
        else:
            _write(file, list(timelines), source, arrows)


def _write(file: IO[bytes] | gzip.GzipFile, timelines: list[Timeline], source: str, arrows: Iterable[Arrow]) -> None:
    notes = {clean(t.name): [clean(note, NOTE_LIMIT) for note in t.notes] for t in timelines if t.notes}
    ceilings = {clean(t.name): clean(t.ceilings) for t in timelines if t.ceilings}
    about = {"perfkit": perfkit.__version__, "source": clean(source), "ceilings": ceilings, "notes": notes}
    head = _encoded({"schemaVersion": 1, "displayTimeUnit": "ns", "otherData": about})
    file.write(head[:-1] + b',"traceEvents":[')
    separator = b"\n"
    for event in chain(events(timelines), _flows(timelines, arrows)):
        file.write(separator + _encoded(event))
        separator = b",\n"
    file.write(b"\n]}\n")


def _encoded(value: dict[str, Any]) -> bytes:
    """JSON without a bare `<`: no name can end a script or open a tag, wherever a page embeds the trace."""
    return msgspec.json.encode(value).replace(b"<", b"\\u003c")


def events(timelines: Iterable[Timeline]) -> Iterator[dict[str, Any]]:
    """The trace events of all timelines, plain data."""
    safe = _Safe()
    for pid, timeline in enumerate(timelines, start=1):
        yield from _names(pid, timeline, safe)
        for slices in (timeline.spans, timeline.rows()):
            for slice_ in slices:
                yield _event(pid, slice_, safe, timeline.later_ns)


def _names(pid: int, timeline: Timeline, safe: _Safe) -> Iterator[dict[str, Any]]:
    yield _meta("process_name", pid, 0, name=safe(timeline.name))
    yield _meta("process_sort_index", pid, 0, sort_index=pid)
    if not timeline.measured:
        yield _meta("process_labels", pid, 0, labels="laid end to end, no start times")
    for lane, name in enumerate(timeline.lanes):
        yield _meta("thread_name", pid, _thread(pid, lane), name=safe(name))
        yield _meta("thread_sort_index", pid, _thread(pid, lane), sort_index=lane)


def _thread(pid: int, lane: int) -> int:
    """A thread's number: Perfetto puts the one that equals its process on top, and takes 0 for an idle processor."""
    return pid if lane == 0 else 1000 * pid + lane


def _meta(what: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _flows(timelines: list[Timeline], arrows: Iterable[Arrow]) -> Iterator[dict[str, Any]]:
    """Yield both ends of each arrow, at the moment at which its source begins, if its target still runs then."""
    bars = [one.bars for one in timelines]
    for number, (source, target) in enumerate(arrows, start=1):
        at = bars[source[0]][1][source[1]] + timelines[source[0]].later_ns
        for kind, (one, row) in (("s", source), ("f", target)):
            lane, start, length = (values[row] for values in bars[one])
            begin = start + timelines[one].later_ns
            shared = {
                "name": "waits",
                "cat": "collective",
                "id": number,
                "pid": one + 1,
                "tid": _thread(one + 1, int(lane)),
            }
            end = {"bp": "e"} if kind == "f" else {}
            yield {"ph": kind, **shared, "ts": round(float(min(max(at, begin), begin + length)) / 1e3, 3), **end}


def _event(pid: int, slice_: Slice, safe: _Safe, later_ns: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": _CATEGORIES.get(slice_.kind, "kernel"),
        "name": safe(_PREFIXES.get(slice_.kind, "") + slice_.name),
        "pid": pid,
        "tid": _thread(pid, slice_.lane),
        "ts": round((slice_.start_ns + later_ns) / 1e3, 3),
        "dur": round(slice_.duration_ns / 1e3, 3),
        "args": {key: safe(value) if isinstance(value, str) else value for key, value in slice_.facts.items()},
    }


class _Safe(dict[str, str]):
    """Texts as `clean` makes them, each worked out once: names come back thousands of times."""

    def __call__(self, text: str) -> str:
        made = self.get(text)
        if made is None:
            made = self[text] = clean(text, NAME_LIMIT)
        return made
