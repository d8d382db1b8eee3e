"""The binary columns of a timeline: their content, from real traces and hostile ones."""

from __future__ import annotations

import base64
import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit.errors import InputError
from perfkit.readers import read
from perfkit.readers.kineto import checks
from perfkit.readers.kineto.recorded import host_traces
from perfkit.render import modules, timeline
from perfkit.table import KernelTable, build
from tests.support.timeline.pages import FIXTURES, of_trace, opened, trace_of

TRACES = ["eager", "eager-stack", "compiled", "graph", "streams", "nccl-rank0"]


@pytest.mark.parametrize("name", TRACES)
def test_tracks_hold_every_event_in_order_without_overlap(name: str) -> None:
    header, columns = opened(of_trace(FIXTURES / f"{name}.json.gz"))
    start, end = columns["start"], columns["start"] + columns["duration"]
    position = 0
    for lane, depth, first, count in header["tracks"]:
        assert first == position and count > 0 and depth >= 0
        assert 0 <= lane < len(header["lanes"])
        assert (start[first + 1 : first + count] >= end[first : first + count - 1]).all()
        position += count
    assert position == len(start) == len(columns["launch"])
    assert start.min() == 0
    assert all(offset % 8 == 0 for _, offset, _ in header["columns"].values())


@pytest.mark.parametrize("name", TRACES)
def test_events_nest_in_the_row_above(name: str) -> None:
    header, columns = opened(of_trace(FIXTURES / f"{name}.json.gz"))
    tracks = {(lane, depth): slice(first, first + count) for lane, depth, first, count in header["tracks"]}
    for (lane, depth), part in tracks.items():
        if depth == 0 or header["lanes"][lane]["kind"] != "thread":
            continue
        above = tracks[lane, depth - 1]
        around = np.searchsorted(columns["start"][above], columns["start"][part], side="right") - 1
        assert (around >= 0).all()
        ends = (columns["start"] + columns["duration"])[above][around]
        assert ((columns["start"] + columns["duration"])[part] <= ends).all()


def test_every_kernel_is_there_with_its_launch_and_facts() -> None:
    path = FIXTURES / "eager.json.gz"
    table = read(path)
    assert isinstance(table, KernelTable)
    header, columns = opened(of_trace(path))
    codes = [header["categories"].index(kind) for kind in ("gpu_kernel", "memcpy", "memset")]
    kernels = np.flatnonzero(np.isin(columns["category"], codes))
    assert len(kernels) == len(table)
    launch = columns["launch"][kernels]
    assert (launch >= 0).mean() > 0.95
    known = launch >= 0
    assert (columns["start"][launch[known]] <= columns["start"][kernels[known]]).all()
    names = {header["names"][i] for i in np.unique(columns["name"][launch[known]])}
    assert all(name.startswith(("cuda", "cu")) for name in names), names
    assert columns["duration"][kernels].sum() == table.frame["duration_ns"].sum()
    fact = next(f for f in header["facts"] if f["name"] == "FLOP")
    rows = columns["row"][kernels]
    assert np.nansum(columns[fact["column"]][rows]) == pytest.approx(float(table.flop.sum()))


def test_operators_of_a_cpu_carry_the_facts_of_their_rows(tmp_path: Path) -> None:
    events = [
        _event("user_annotation", "perfkit:step:0", 0, 100),
        _event("user_annotation", "perfkit:pass:forward", 0, 100),
        _event("cpu_op", "aten::linear", 10, 90),
        _event("cpu_op", "aten::addmm", 20, 80, **{"Input Dims": [[4], [8, 4], [4, 4]], "Input type": ["float"] * 3}),
    ]
    header, columns = opened(of_trace(trace_of(events, tmp_path / "t.json.gz")))
    assert [lane["name"] for lane in header["lanes"]] == ["steps and passes", "thread 1"]
    (at,) = np.flatnonzero(columns["name"] == header["names"].index("aten::addmm"))
    assert columns["row"][at] >= 0
    assert columns["duration"][at] == 60_000
    assert header["passes"][columns["pass"][at]] == "forward"


def _event(cat: str, name: str, start: float, end: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args}


def test_a_table_alone_shows_its_kernels(tmp_path: Path) -> None:
    table = read(FIXTURES / "eager.json.gz")
    assert isinstance(table, KernelTable)
    table.write(tmp_path / "kernels.parquet")
    alone = read(tmp_path / "kernels.parquet")
    header, columns = opened(timeline.packed(alone, "x")["profile"])
    assert {lane["kind"] for lane in header["lanes"]} == {"spans", "stream"}
    assert (columns["launch"] == -1).all()


def test_a_trace_that_is_gone_leaves_the_kernels(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes((FIXTURES / "streams.json.gz").read_bytes())
    source = read(path)
    assert list(host_traces(source)) == ["profile"]
    assert host_traces(source, largest=100) == {}
    header, _ = opened(timeline.packed(source, "x")["profile"])
    assert timeline.NO_HOST in header["notes"]
    path.write_bytes(b"\x1f\x8b damaged")
    source.recorded.clear()
    assert host_traces(source) == {}
    path.unlink()
    assert host_traces(source) == {}


def test_long_names_and_control_characters_are_cleaned() -> None:
    names = ["<script>alert(1)</script>", "\x1b[31mred\x1b[0m", "x" * 10_000_000, "a\u202eb"]
    same = {"kind": "gpu_kernel", "device": "cuda:0", "stream": 7, "duration_ns": 5.0}
    rows = [{**same, "name": n, "order": i, "start_ns": 10.0 * i} for i, n in enumerate(names)]
    content = timeline.packed(build(rows), "x")["profile"]
    header, _ = opened(content)
    assert len(content) < 50_000
    assert all(len(name) <= 4000 and name.isprintable() for name in header["names"])


def test_nothing_that_can_be_drawn_is_no_timeline() -> None:
    rows = [{"name": "k", "kind": "gpu_kernel", "device": "cuda:0", "order": 0, "duration_ns": math.nan}]
    assert timeline.packed(build(rows), "x") == {}
    assert timeline.embedded(build([]), "x") == {}


def test_one_too_large_for_a_report_goes_without_the_host_then_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    path = FIXTURES / "eager.json.gz"
    whole = timeline.embedded(read(path), "x", host_traces(read(path)))["profile"]
    monkeypatch.setattr(timeline, "EMBEDDED_LIMIT", len(whole) - 1)
    source = read(path)
    header, _ = opened(
        gzip.decompress(base64.b64decode(timeline.embedded(source, "x", host_traces(source))["profile"]))
    )
    assert {lane["kind"] for lane in header["lanes"]} == {"spans", "stream"}
    assert timeline.TOO_LARGE in header["notes"]
    monkeypatch.setattr(timeline, "EMBEDDED_LIMIT", 100)
    assert timeline.embedded(read(path), "x", host_traces(source)) == {"profile": ""}


def test_modules_that_cannot_be_embedded_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text('import { b } from "./b.js";\nexport const a = b;\n')
    with pytest.raises(InputError, match=r"lacks .*b\.js"):
        modules.bundle(tmp_path / "a.js")
    (tmp_path / "b.js").write_text('import { a } from "./a.js";\nexport const b = 1;\n')
    with pytest.raises(InputError, match="imports itself"):
        modules.bundle(tmp_path / "a.js")
    (tmp_path / "b.js").write_text("export default 1;\n")
    with pytest.raises(InputError, match="cannot embed"):
        modules.bundle(tmp_path / "a.js")
    (tmp_path / "b.js").write_text("const hidden = 1;\nexport const b = hidden;\n")
    assert "hidden" not in modules.bundle(tmp_path / "a.js").rpartition("return")[2]


def test_more_passes_than_can_be_counted_do_no_harm() -> None:
    same = {"name": "k", "kind": "gpu_kernel", "device": "cuda:0", "duration_ns": 1.0}
    rows = [{**same, "order": i, "start_ns": 2.0 * i, "pass": f"p{i}"} for i in range(33_000)]
    header, columns = opened(timeline.packed(build(rows), "x")["profile"])
    assert len(header["passes"]) == 2**15 - 1
    assert columns["pass"].max() == 2**15 - 2 and (columns["pass"] == -1).any()


ABSURD = [0.0, -1e300, 1e300, -5.0, 2.0**60, 1e-300, 17.5]


def test_absurd_times_in_a_trace_leave_tracks_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "refuse", lambda path, found: None)  # such a trace is refused before it gets here
    events = [
        {**_event(cat, f"e{i}", 0, 0, correlation=i, device=0, stream=7), "ts": start, "dur": duration}
        for i, (cat, start, duration) in enumerate(
            (cat, start, duration)
            for cat in ("cpu_op", "cuda_runtime", "kernel")
            for start in ABSURD
            for duration in ABSURD
        )
    ]
    header, columns = opened(of_trace(trace_of(events, tmp_path / "t.json.gz")))
    _check_order(header, columns)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("start", ABSURD)
def test_absurd_times_in_a_table_leave_tracks_in_order(start: float) -> None:
    rows = [
        {"name": "k", "kind": "gpu_kernel", "device": "cuda:0", "order": i, "start_ns": s, "duration_ns": abs(d)}
        for i, (s, d) in enumerate((s, d) for s in (start, 3.0) for d in ABSURD)
    ]
    _check_order(*opened(timeline.packed(build(rows), "x")["profile"]))


def _check_order(header: dict[str, Any], columns: dict[str, np.ndarray]) -> None:
    start, duration = columns["start"], columns["duration"]
    assert np.isfinite(start).all() and np.isfinite(duration).all()
    assert start.min() == 0 and (duration >= 0).all()
    for _, _, first, count in header["tracks"]:
        part = slice(first, first + count)
        assert (start[part][1:] >= (start + duration)[part][:-1]).all()


def test_the_thread_that_runs_the_steps_stands_first() -> None:
    """The backward thread begins later, whichever the file names first."""
    header, columns = opened(of_trace(FIXTURES / "eager.json.gz"))
    lanes = [i for i, lane in enumerate(header["lanes"]) if lane["kind"] == "thread"]
    firsts = [min(columns["start"][f] for lane, _, f, _ in header["tracks"] if lane == number) for number in lanes]
    assert len(lanes) == 2 and firsts == sorted(firsts)
    names = [header["names"][i] for i in columns["name"]]
    step = next(i for i, name in enumerate(names) if name.startswith("ProfilerStep"))
    assert next(lane for lane, _, f, n in header["tracks"] if f <= step < f + n) == lanes[0]
