"""The page of an annotated listing in headless Chromium."""

from __future__ import annotations

import pytest

from perfkit import table
from perfkit.analysis.listing import listing
from perfkit.render.pages import annotated

pytestmark = pytest.mark.browser

PROGRAM = "# forward\ndef forward(x):\n\ta = linear(x)\n  b = gelu(a)  # <img src=x onerror=alert(1)>\n  return b"


@pytest.fixture
def page(open_page, tmp_path):
    rows = [
        {"name": name, "short_name": name, "order": i, "step": 0, "duration_ns": ns, "pass": "forward", "range": path}
        for i, (name, ns, path) in enumerate(
            [("addmm", 9e5, "generated:3"), ("gelu", 1e5, "generated:4"), ("lerp_", 2e5, None)]
        )
    ]
    made = listing("thunder", "GPT-2", PROGRAM, table.build(rows), None)
    path = tmp_path / "annotated.html"
    path.write_text(annotated.render_html(made), encoding="utf-8")
    page, errors = open_page(path)
    page.wait_for_selector("html[data-ready]", state="attached")
    yield page
    assert errors == []


def test_lines_that_cost_stand_with_their_numbers_and_heat(page):
    shown = page.locator(".line.hot")
    assert shown.count() == 2
    assert shown.nth(0).inner_text().split() == ["900.0", "75.0%", "–", "–", "3", "a", "=", "linear(x)"]
    heat = [shown.nth(i).evaluate("node => getComputedStyle(node).borderLeftColor") for i in (0, 1)]
    assert heat[0] == "rgb(226, 88, 40)"
    assert heat[1].startswith("rgba(226, 88, 40, 0.3")
    assert page.locator("#others tbody tr").inner_text().startswith("forward: lerp_")


def test_all_lines_show_on_demand(page):
    hidden = page.locator("#L1")
    assert not hidden.is_visible()
    assert page.locator(".passage").first.is_visible()
    page.get_by_role("button", name="All lines").click()
    assert hidden.is_visible()
    assert not page.locator(".passage").first.is_visible()
    assert page.locator("img").count() == 0


def test_a_hot_line_leads_to_its_place(page):
    page.get_by_role("link", name="3", exact=True).click()
    assert page.evaluate("location.hash") == "#L3"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_both_themes(page, scheme):
    page.emulate_media(color_scheme=scheme)
    ink, ground = (
        page.locator("#L3").evaluate(f"node => getComputedStyle(document.body).{name}")
        for name in ("color", "backgroundColor")
    )
    assert ink != ground
