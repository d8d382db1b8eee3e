"""A sweep's page in headless Chromium: every point, its axes and its legend are there, and the console stays silent."""

from __future__ import annotations

import pytest

from perfkit.render import page as pages
from perfkit.render.pages import sweep as rendered
from tests.analysis.test_sweep import swept

__all__ = ["swept"]

pytestmark = pytest.mark.browser


@pytest.fixture
def shown(swept, open_page, tmp_path):
    path = tmp_path / "sweep.html"
    path.write_text(pages.render_html(rendered.page(swept)), encoding="utf-8")
    page, errors = open_page(path)
    page.wait_for_selector("html[data-ready]")
    page.wait_for_function("document.querySelectorAll('.chart .scatterlayer').length === 3")
    yield page
    assert errors == []


def test_every_run_is_a_point_at_its_size(shown, swept):
    times, throughput, efficiency = shown.locator(".chart").all()
    for chart in (times, throughput, efficiency):
        assert chart.locator(".scatterlayer .trace").count() == 2
        assert chart.locator(".scatterlayer .points path").count() == len(swept.points)
        assert chart.locator(".legendtext").all_text_contents() == ["eager (kind a)", "eager (kind b)"]
    drawn = times.evaluate("chart => chart.shows.series.map(s => [s.x, s.y, s.high.map((h, i) => h - s.y[i])])")
    for (x, y, above), power in zip(drawn, (1, 2), strict=True):
        assert x == [2, 4, 8] and y == pytest.approx([float(n**power) for n in x])
        assert above == pytest.approx([0.1 * value for value in y]), "the interval of each point"


def test_axes_have_names_units_and_the_sizes_that_were_run(shown):
    charts = shown.locator(".chart").all()
    assert [c.locator(".xtitle").text_content() for c in charts] == ["batch_size"] * 3
    assert [c.locator(".ytitle").text_content() for c in charts] == ["ms", "samples/s", "% of the ceilings"]
    assert [c.get_attribute("aria-label") for c in charts] == [
        f"{what} against batch_size" for what in ("step time", "throughput", "efficiency")
    ]
    for chart in charts:
        assert chart.locator(".xtick text").all_text_contents() == ["2", "4", "8"]
    kinds = charts[0].evaluate("c => [c.shows.x.log, c.shows.y.log]")
    assert kinds == [True, True]
    assert charts[2].evaluate("c => c.shows.y.zero") is True, "a share begins at nothing"


def test_what_is_wrong_stands_first_and_its_reason_is_text(shown):
    assert shown.locator("#verdict .lead").inner_text().startswith("compile is wrong at batch_size 4, kind b")
    assert shown.locator("#verdict b").count() == 0
    published, eager, compiled, growth = shown.locator("table").all_inner_texts()
    assert "✗ wrong" in published and "✗ wrong" not in eager
    assert "✗ wrong" in compiled and "×" not in compiled.split("✗ wrong")[1]
    assert "2.00" in growth and "1.00" in growth
