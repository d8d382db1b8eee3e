"""A grid of runs as one result, against figures worked out by hand."""

from __future__ import annotations

import json

import msgspec
import pytest

from perfkit.analysis.results import BackendReport, Interval, Report
from perfkit.analysis.sweep import Sweep, lines, scaling, summarise
from perfkit.render import page
from perfkit.render.pages import sweep as rendered
from perfkit.run_folder import Settings


def interval(value: float) -> Interval:
    return Interval(value=value, low=0.9 * value, high=1.1 * value, samples=5)


def run(time_ns: float | None, status: str = "ok", name: str = "eager", reason: str = "") -> BackendReport:
    step = interval(time_ns) if time_ns is not None else None
    return BackendReport(name=name, status=status, step=step, reason=reason, efficiency=0.5, samples_per_second=10.0)


@pytest.fixture
def swept() -> Sweep:
    axes = {"batch_size": ["2", "4", "8"], "kind": ["a", "b"]}
    runs = []
    for size in (8, 2, 4):
        for kind, power in (("a", 1), ("b", 2)):
            backends = [run(1e6 * size**power)]
            if (size, kind) == (4, "b"):
                backends.append(run(1e4, "wrong", "compile", "its loss <b>differs</b>"))
            report = Report(perfkit="0", title="t", source=f"runs/{size}{kind}", backends=backends)
            runs.append(({"batch_size": str(size), "kind": kind}, report))
    return summarise(axes, runs)


def test_growth_is_fitted_along_sizes_with_the_others_fixed(swept):
    assert swept.numeric == ["batch_size"]
    found = {g.others["kind"]: g for g in swept.growth}
    assert found["a"].exponent == pytest.approx(1.0) and found["b"].exponent == pytest.approx(2.0)
    assert {g.points for g in swept.growth} == {3}


def test_along_steps_it_is_all_of_them_that_take_longer():
    """A step costs the same however many there are: what grows in proportion is the time of all."""
    runs = []
    for steps in (2, 4, 8):
        backend = run(3e6)
        backend.samples_ns = [3e6] * steps
        values = {"steps": str(steps)}
        runs.append((values, Report(perfkit="0", title="t", source=f"r{steps}", backends=[backend])))
    swept = summarise({"steps": ["2", "4", "8"]}, runs)
    assert [g.exponent for g in swept.growth] == [pytest.approx(1.0)]
    made = rendered.page(swept)
    assert any("all steps' time grows as steps^1.00" in sentence for sentence in made.verdict)
    [figure] = [f for s in made.sections for f in s.figures if f.title == "time of all steps against steps"]
    assert figure.series[0].y == pytest.approx([6.0, 12.0, 24.0]) and not figure.series[0].low


def test_lines_are_in_the_order_of_sizes(swept):
    along = {others["kind"]: [size for size, _ in members] for _, others, members in lines(swept, "batch_size")}
    assert along == {"a": [2, 4, 8], "b": [2, 4, 8]}


def test_the_wrong_are_said_first_and_are_on_no_line(swept):
    assert {name for name, _, _ in lines(swept, "batch_size")} == {"eager"}
    assert {g.backend for g in swept.growth} == {"eager"}
    assert [(p.values["batch_size"], m.name) for p, m in swept.bad] == [("4", "compile")]
    made = rendered.page(swept)
    assert made.bad and made.verdict[0].startswith("compile is wrong at batch_size 4, kind b")
    assert any("grows as batch_size^2.00" in sentence for sentence in made.verdict)


def test_every_format_shows_it(swept):
    made = rendered.page(swept)
    text = page.render_text(made)
    assert "step time against batch_size" in text and "✗ wrong" in text
    html = page.render_html(made)
    assert "<b>differs</b>" not in html.split("<script", 1)[0]
    assert "batch\\_size" in page.render_markdown(made) or "batch_size" in page.render_markdown(made)
    figures = [f for s in made.sections for f in s.figures]
    assert [f.title for f in figures] == [f"{w} against batch_size" for w in ("step time", "throughput", "efficiency")]
    assert figures[0].series[0].x == [2, 4, 8] and figures[0].series[0].y == pytest.approx([2.0, 4.0, 8.0])


@pytest.mark.parametrize(("sizes", "explained"), [((2, 4), False), ((2, 4, 8), True)])
def test_intervals_are_explained_where_there_are_some(sizes, explained):
    runs = [
        ({"width": str(size)}, Report(perfkit="0", title="t", source=f"r{size}", backends=[run(1e6 * size)]))
        for size in sizes
    ]
    text = page.render_text(rendered.page(summarise({"width": [str(size) for size in sizes]}, runs)))
    assert "Least squares on logarithms" in text
    assert ("95 % CI" in text.split("grows")[-1]) == ("a wide interval" in text) == explained


def test_one_run_alone_has_no_growth():
    swept = summarise({}, [({}, Report(perfkit="0", title="t", source="r", backends=[run(1e6)]))])
    assert swept.growth == [] and "as set" in page.render_text(rendered.page(swept))
    assert json.loads(msgspec.json.encode(swept))["points"][0]["values"] == {}


def test_an_exponent_that_may_be_anything_is_not_stated():
    runs = [
        ({"width": str(size)}, Report(perfkit="0", title="t", source=f"r{size}", backends=[run(time)]))
        for size, time in ((1, 1e6), (2, 4e6), (4, 5e6))
    ]
    made = rendered.page(summarise({"width": ["1", "2", "4"]}, runs))
    (sentence,) = made.verdict
    assert sentence.startswith("How fast the time grows is not shown by 1 of 1 lines") and "^" not in sentence
    assert " to " in page.render_text(made), "the interval is in the table"


def on_devices(ranks: int, rate: float, step: float, status: str = "ok") -> tuple[dict[str, str], Report]:
    backend = run(step, status, "llmc", "" if status == "ok" else "its loss differs")
    backend.samples_per_second, backend.peak_memory_bytes = rate, 3e9
    settings = Settings(workload="toy", preset="tiny", batch_size=8, ranks=ranks, parallel="ddp" if ranks > 1 else "")
    report = Report(perfkit="0", title="t", source=f"r{ranks}", backends=[run(9e6), backend])
    report.settings = settings
    return {"ranks": str(ranks)}, report


def test_the_table_that_people_publish():
    """Backend × devices × time × memory, and what the devices add: 150 of 2 × 100 are 75 %, and a wrong one none."""
    runs = [on_devices(1, 100.0, 8e6), on_devices(2, 150.0, 5e6), on_devices(4, 999.0, 1e6, "wrong")]
    swept = summarise({"ranks": ["1", "2", "4"]}, runs)
    llmc = [p.members[1] for p in swept.points]
    assert [scaling(swept, p, m) for p, m in zip(swept.points, llmc, strict=True)] == [1.0, 0.75, None]
    shown = next(s.table for s in rendered.page(swept).sections if s.table)
    assert shown.title == "Backends and devices"
    text = page.render_markdown(rendered.page(swept))
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    heads = next(row for row in rows if "devices" in row)
    [two] = [row for row in rows if "llmc" in row[0] and "2" in row[1:2]]
    found = dict(zip(heads, two, strict=True))
    assert "ddp" in found.values() and any("5.00" in v for v in found.values()), found
    assert any(v.startswith("75") for v in found.values()), found


def test_one_device_has_that_table_for_several_backends():
    alone = summarise({}, [on_devices(1, 100.0, 8e6)])
    [table] = [s.table for s in rendered.page(alone).sections if s.table and s.table.title == "Backends and devices"]
    assert "scaling" not in [c.header for c in table.columns]
