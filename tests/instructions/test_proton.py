"""Scopes of Proton inside kernels, as regions: a real trace against a plain count, launches, damage."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit import readers
from perfkit.cli.parts.output import json_of
from perfkit.cli.parts.regions import is_regions, show
from perfkit.errors import InputError
from perfkit.instructions import proton
from perfkit.render.page import render_html, render_text
from perfkit.render.pages import regions as rendered

FOLDER = Path(__file__).parent.parent / "fixtures" / "proton"
TRACE = FOLDER / "scopes.chrome_trace"
EVENTS = json.loads(TRACE.read_text())["traceEvents"]


def written(path: Path, events: list[Any]) -> Path:
    path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))
    return path


def scope(name: str, core: int, block: int, warp: int, ts: float, dur: float, kernel: str = "k") -> dict[str, Any]:
    place = {"pid": f"{kernel} Core{core} CTA{block}", "tid": f"warp {warp} (line 0)"}
    return {"ph": "X", "name": name, "cat": kernel, "ts": ts, "dur": dur, "args": {"Frequency (MHz)": 1000.0}, **place}


def test_a_real_trace_equals_a_plain_count() -> None:
    launch, records = proton.read(TRACE)
    assert (launch.kernel, launch.launches, launch.unit, launch.multiprocessors) == ("staged", 2, "cycles", 0)
    first = EVENTS[:224]  # of 448 events of two equal launches; that of the cold caches is the longer one
    assert len(records.name) == len(first) and max(one["ts"] for one in first) < 10 < EVENTS[224]["ts"]
    for region in launch.regions:
        own = [one["dur"] * 1e3 for one in first if one["name"] == region.name]
        assert region.records == len(own) and region.warp_ns == pytest.approx(sum(own))
    assert {one.name: one.records for one in launch.regions} == {
        "whole": 32,
        "arithmetic": 128,
        "load": 32,
        "store": 32,
    }
    assert [(one.sm, one.blocks, one.warps) for one in sorted(launch.by_sm, key=lambda one: one.sm)] == [
        (sm, 1, 4) for sm in range(124, 132)
    ]
    by_hand = [sum(o["dur"] for o in first if o["name"] == "whole" and "Core131" in o["pid"]) / 4 * 1e3]
    assert next(one for one in launch.by_sm if one.sm == 131).busy_ns == pytest.approx(by_hand[0], rel=0.05)


def test_cycles_are_not_called_nanoseconds() -> None:
    launch, records = proton.read(TRACE)
    page = rendered.page("k", launch, records)
    text = render_text(page)
    assert "regions of staged are on 8 multiprocessors, the longest of 2 launches" in text and "k cycles" in text
    assert "µs" not in text.partition("Lengths are cycles")[0] and np.isnan(launch.idle_tail)
    assert "a cycle as 1 ns" in render_html(page) and "wait for the last one" not in text
    assert page.warnings[0].startswith("Lengths are cycles")


def test_launches_of_kernels_are_told_apart(tmp_path: Path) -> None:
    """Blocks of one launch share a multiprocessor; a warp that comes again is the next launch, another kernel too."""
    events = [scope("a", 7, block, warp, 0.1 * block, 1.0) for block in range(2) for warp in range(2)]
    events += [scope("a", core, block, 0, 90 + block, 2.0) for block, core in ((0, 5), (1, 7))]
    events += [scope("b", 7, 0, 0, 99, 0.5, kernel="other"), {"ph": "M", "name": "process_name"}]
    launch, records = proton.read(written(tmp_path / "t.json", events))
    assert (launch.kernel, launch.launches) == ("k", 2)
    assert records.begin_ns.tolist() == pytest.approx([0, 1000]) and launch.regions[0].warp_ns == pytest.approx(4000)
    launch, _ = proton.read(written(tmp_path / "t.json", events[:4]))
    [one] = launch.by_sm
    assert (launch.launches, one.blocks, one.warps) == (1, 2, 4) and one.busy_ns == pytest.approx(1100)


def test_inspect_shows_a_trace_and_report_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "scopes.chrome_trace.gz"
    packed.write_bytes(gzip.compress(TRACE.read_bytes()))
    assert is_regions(TRACE) and is_regions(packed) and not is_regions(FOLDER / "scopes.hatchet")
    show(packed, None, None, json_of(True))
    shown = json.loads(capsys.readouterr().out)
    assert (shown["unit"], shown["regions"][0]["name"]) == ("cycles", "whole")
    with pytest.raises(InputError, match="scopes inside kernels") as refused:
        readers.read(TRACE)
    assert "perfkit inspect" in str(refused.value.hint)
    with pytest.raises(InputError, match="without times of kernels") as refused:
        readers.read(FOLDER / "scopes.hatchet")
    assert 'data="trace"' in str(refused.value.hint)


@pytest.mark.parametrize(
    "event",
    [
        {"ts": "soon"}, {"dur": -1.0}, {"dur": float("inf")}, {"tid": "lane 0"}, {"args": {}}, {"args": None},
        {"pid": f"k Core{1 << 40} CTA0"}, {"ph": "M"},
    ],
)  # fmt: skip
def test_damage_is_said(tmp_path: Path, event: dict[str, Any]) -> None:
    damaged = {**scope("a", 0, 0, 0, 0.0, 1.0), **event}
    with pytest.raises(InputError, match="damaged"):
        proton.read(written(tmp_path / "t.json", [damaged]))
    (tmp_path / "cut.json").write_bytes(TRACE.read_bytes()[:5000])
    with pytest.raises(InputError, match="damaged"):
        proton.read(tmp_path / "cut.json")
