"""Pages of tables and figures: as text, as Markdown, as HTML in a browser; and figures drawn with characters."""

from __future__ import annotations

import math

import pytest

from perfkit.bench.results import Bench, BenchPoint, BenchRow, Error, Roof, Scaling, Timing
from perfkit.render import page, textplot
from perfkit.render.pages import bench as rendered
from perfkit.render.pages.figures import Figure, Series
from perfkit.statistics import Estimate


def timing(ns: float, bytes_: float, roof: float) -> Timing:
    interval = Estimate(ns, ns * 0.98, ns * 1.03, 30)
    return Timing(ns=interval, samples=[ns] * 30, bandwidth=bytes_ / ns * 1e9, flop_rate=1e9, efficiency=roof / ns)


def point(size: int) -> BenchPoint:
    moved = 8.0 * size
    roofs = {
        "warm": Roof(ns=size * 0.05, bound="memory", ceiling="triad, 1 MiB working set (fits L2)"),
        "cold": Roof(ns=size * 0.4, bound="memory", ceiling="copy, 512 MiB working set (main memory)"),
    }
    own = BenchRow(
        way="pytorch", text="PyTorch's own operator", errors=[Error("y", 7e-8, 4e-5)],
        warm=timing(size * 0.12, moved, size * 0.05), cold=timing(size * 0.7, moved, size * 0.4),
    )  # fmt: skip
    fast = BenchRow(
        way="c:2", text="threads, vectors", errors=[Error("y", 2e-7, 1e-5)],
        warm=timing(size * 0.06, moved, size * 0.05), cold=timing(size * 0.5, moved, size * 0.4),
        speedup=Estimate(2.0, 1.9, 2.1, 30),
    )  # fmt: skip
    wrong = BenchRow(
        way="triton:1", text="blocks", parameters={"BLOCK": 512}, status="wrong", errors=[Error("y", None, 1e-5)],
        reason="y: error not a number, or infinite, allowed 1e-05",
    )  # fmt: skip
    return BenchPoint(
        sizes={"N": size}, dtype="fp32", bytes=moved, flop={"vector_fp32": 9.0 * size}, roofs=roofs,
        rows=[own, fast, wrong],
    )  # fmt: skip


@pytest.fixture
def bench() -> Bench:
    return Bench(
        operation="gelu_forward", formula="y = gelu(x) <b>", device="cpu", device_name="a processor", threads=2, seed=7,
        points=[point(n) for n in (1000, 10_000, 100_000)], sweep="N", environment={"torch": "2.13.0"},
        scaling=[Scaling(way="c:2", dtype="fp32", variable="N", exponent=1.0, low=0.98, high=1.02, points=3)],
    )  # fmt: skip


def test_a_benchmark_as_text(bench, golden):
    golden("render/bench.txt", page.render_text(rendered.page(bench)))


def test_a_wrong_way_has_no_figure_in_any_form(bench):
    made = rendered.page(bench)
    rows = [line for line in page.render_text(made).splitlines() if line.startswith("triton:1 BLOCK=512 ")]
    assert len(rows) == 3 and all("✗ wrong" in row and row.count("–") >= 5 for row in rows)
    assert made.bad and "triton:1 BLOCK=512 is wrong at N=1000 fp32" in made.verdict[0]
    assert not any("triton" in s.name for section in made.sections for f in section.figures for s in f.series)
    assert "<b>" not in page.render_markdown(made)


def test_one_point_has_a_verdict():
    alone = point(1000)
    alone.rows = alone.rows[:2]
    made = rendered.page(
        Bench(operation="o", formula="", device="cpu", device_name="", threads=1, seed=0, points=[alone])
    )
    assert made.verdict == ["c:2 is the fastest: 60 ns, 2.00× as fast as PyTorch's own operator."]
    alone.rows[1].speedup = Estimate(2.0, 0.9, 2.1, 30)
    made = rendered.page(
        Bench(operation="o", formula="", device="cpu", device_name="", threads=1, seed=0, points=[alone])
    )
    assert "no difference from PyTorch's own operator is shown (2.00×)" in made.verdict[0]


@pytest.mark.browser
def test_a_benchmark_in_a_browser(bench, open_page, tmp_path):
    path = tmp_path / "bench.html"
    path.write_text(page.render_html(rendered.page(bench)), encoding="utf-8")
    shown, errors = open_page(path)
    shown.wait_for_selector("html[data-ready]")
    assert shown.locator("h1").inner_text() == "gelu_forward: benchmark"
    assert shown.locator(".chart .scatterlayer").count() == 4  # time and efficiency, warm and cold
    assert shown.locator("table").count() == 6
    assert "y = gelu(x) <b>" in shown.locator("#settings").inner_text()
    shown.click("#theme")
    assert errors == []


def test_a_figure_in_characters():
    figure = Figure(
        title="t", x="size", y="µs", log_x=True, log_y=True,
        series=[Series(name="a", x=[1, 10, 100], y=[1, 10, 100]), Series(name="b", x=[1, 100], y=[100, math.nan])],
    )  # fmt: skip
    drawn = textplot.lines(figure, 60)
    assert drawn[0] == "t (µs)" and drawn[-1] == "● a  ○ b"
    assert all(len(line) <= 60 for line in drawn)
    canvas = [line.partition("┤")[2] for line in drawn[1 : 1 + textplot.HEIGHT]]
    assert canvas[0].startswith("○") and canvas[0].endswith("●") and len(canvas[0]) == 48
    assert canvas[-1] == "●"
    assert drawn[1].startswith("       100 ") and drawn[textplot.HEIGHT].startswith("         1 ")


def test_a_figure_of_nothing_and_of_one_point():
    empty = Figure(title="t", x="", y="", series=[Series(name="a", x=[1], y=[math.nan])])
    assert textplot.lines(empty, 60) == ["t: nothing to draw."]
    one = Figure(title="t", x="", y="", series=[Series(name="a", x=[5], y=[5])])
    assert sum(line.count("●") for line in textplot.lines(one, 60)) == 2  # the point and the legend


@pytest.mark.parametrize(
    ("values", "line"),
    [([], ""), ([math.nan], ""), ([1, 1], "▄▄"), ([0, 7], "▁█"), (range(8), "▁▂▃▄▅▆▇█"), (range(100), "▁▂▃▄▅▆▇█")],
)
def test_sparklines(values, line):
    drawn = textplot.sparkline(list(values), 8)
    assert drawn == line


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1, "1"), (0.5, "0.5"), (1234.5, "1,234"), (12345, "12,345"), (2e7, "2e+07"), (1e-5, "1e-05")],
)
def test_numbers(value, text):
    assert textplot.number(value) == text
