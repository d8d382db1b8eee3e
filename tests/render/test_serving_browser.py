"""A serving engine's page in headless Chromium: a row a phase, and every iteration in both figures."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest

from perfkit.analysis.results import Report
from tests.render.conftest import Show
from tests.support.analysis import profiles
from tests.support.analysis.serving import decode, engine, mixed, prefill

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

FIGURES = {"Iterations over time": "time (", "Tokens of each iteration": "tokens"}


def engines() -> Report:
    """A real trace of two iterations, with the phases of an engine that ran six."""
    report = copy.deepcopy(profiles.kineto("engine"))
    report.backends[0].serving = engine([prefill(900), decode(), decode(), mixed(700), decode(), decode()]).serving
    return report


def rows(page: Page) -> dict[str, list[str]]:
    """The cells of the table of phases by the name of the phase."""
    card = page.locator("section.card", has=page.get_by_role("heading", name="Serving", exact=True))
    found = [row.locator("td, th").all_inner_texts() for row in card.locator("tbody tr").all()]
    return {cells[0].strip(): cells for cells in found}


def test_each_phase_is_a_row_with_what_is_known(show: Show) -> None:
    page = show(profiles.kineto("engine"))
    found = rows(page)
    assert set(found) == {"mixed", "decode"}
    assert found["mixed"][1].strip() == found["decode"][1].strip() == "1"  # iterations
    text = page.locator("body").inner_text()
    assert "The time to first token is unknown" in text and "The GPU is idle" in text
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_every_iteration_is_a_point_where_it_begins(show: Show) -> None:
    report = engines()
    page, phases = show(report), report.backends[0].serving
    assert [phase.name for phase in phases] == ["prefill", "mixed", "decode"]
    for title, axis in FIGURES.items():
        chart = page.locator(f".chart[aria-label='{title}']")
        assert chart.locator(".scatterlayer .points path").count() == 6
        assert chart.locator(".legendtext").all_text_contents() == ["prefill", "mixed", "decode"]
        assert chart.locator(".ytitle").text_content().startswith(axis)
        assert chart.locator(".xtitle").text_content().startswith("begin (")
    times = page.locator(".chart[aria-label='Iterations over time']").evaluate(
        "c => c.shows.series.map(s => [s.x, s.y])"
    )
    tokens = page.locator(".chart[aria-label='Tokens of each iteration']").evaluate("c => c.shows.series.map(s => s.y)")
    for phase, (x, y), made in zip(phases, times, tokens, strict=True):
        assert y == pytest.approx([t / 1e6 for t in phase.times_ns]) or y == pytest.approx(
            [t / 1e3 for t in phase.times_ns]
        )
        assert x == sorted(x) and len(x) == phase.iterations and made == [float(n) for n in phase.tokens]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_in_either_theme(show: Show, scheme: str) -> None:
    page = show(engines())
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 800, "height": 900})
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") <= 800
