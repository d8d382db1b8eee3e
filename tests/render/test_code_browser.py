"""The page of the code of kernels in headless Chromium: lines shaded by their samples, and the units over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perfkit.instructions.results import FILLED, CounterCourse
from perfkit.render.pages import code as rendered
from tests.instructions.test_code import strided
from tests.render.conftest import OpenPage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


@pytest.fixture
def page(open_page: OpenPage, tmp_path: Path) -> Iterator[Page]:
    code = strided()
    code.name = "f<img src=x onerror=alert(1)>"
    at = [100.0 * i for i in range(1, 10)]
    code.courses = [
        CounterCourse(name=FILLED, unit="cycle", interval_ns=100.0, at_ns=at, values=[900.0] * 4 + [90.0] * 5),
        CounterCourse(name="device memory", unit="%", interval_ns=100.0, at_ns=at, values=[40.0] * 8 + [0.0]),
    ]
    path = tmp_path / "code.html"
    path.write_text(rendered.render_html("f.ncu-rep", [code]), encoding="utf-8")
    page, errors = open_page(path)
    page.wait_for_selector("html[data-ready]", state="attached")
    page.wait_for_function("document.querySelectorAll('.chart .scatterlayer').length === 2")
    yield page
    assert errors == []


def test_source_and_sass_have_their_shares_and_heat(page: Page) -> None:
    hot = page.locator(".line.hot")
    assert hot.count() == 3  # a line of the source, two instructions
    texts = [" ".join(hot.nth(i).inner_text().split()) for i in range(3)]
    assert all(share in text for share, text in zip(("100", "80", "20"), texts, strict=True))
    assert "y[i] = a + 1;" in texts[0] and "FADD R3, R2, 1" in texts[1] and "STG.E" in texts[2]
    full, less = (hot.nth(i).evaluate("node => getComputedStyle(node).borderLeftColor") for i in (1, 2))
    assert full != less and less.startswith("rgba(")


def test_names_stay_text_and_all_lines_show_on_demand(page: Page) -> None:
    assert page.locator("img").count() == 0 and "f<img" in page.locator("#kernels h2").first.inner_text()
    hidden = page.get_by_text("__global__ void f()")
    assert not hidden.is_visible()
    page.get_by_role("button", name="All lines").first.click()
    assert hidden.is_visible()


def test_units_over_the_life_of_the_kernel(page: Page) -> None:
    filled, memory = page.locator(".chart").all()
    assert [chart.get_attribute("aria-label") for chart in (filled, memory)] == [FILLED, "device memory"]
    assert filled.evaluate("c => c.shows.series[0].y") == [100.0] * 4 + [10.0] * 5
    assert memory.evaluate("c => c.shows.series[0].x") == pytest.approx([0.1 * i for i in range(1, 10)])
    assert "In the last 600 ns (60% of the kernel)" in page.locator(".note").first.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
