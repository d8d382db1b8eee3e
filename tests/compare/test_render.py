"""Rendered comparisons: golden files, hostile names, and the page in Chromium."""

from __future__ import annotations

import json
import re

import pytest

from perfkit.render import json as json_render
from perfkit.render.pages import compare as rendered
from tests.support.compare.sample import hostile, measured


def test_text_markdown_and_json_are_as_they_were(golden):
    found = measured()
    golden("compare/comparison.txt", rendered.render_text(found))
    golden("compare/comparison.md", rendered.render_markdown(found))
    golden("compare/comparison.json", json_render.render(found))


def test_a_family_is_found_guilty_and_no_other():
    verdicts = {t.metric: t.judgement.verdict for t in measured().pairs[0].tested}
    assert verdicts["family:matmul"] == "worse" and verdicts["family:elementwise"] == "no difference shown"


def test_json_knows_no_nan():
    assert json.loads(json_render.render(measured()))["schema"] == 1


def test_names_stay_text():
    found = hostile()
    text, markdown, page = rendered.render_text(found), rendered.render_markdown(found), rendered.render_html(found)
    for shown in (text, markdown):
        assert "\x1b" not in shown and "\u202e" not in shown
    assert "<img" not in markdown and not re.search(r"(?<!\\)\[x\]", re.sub(r"(`+) ?.*?\1", "", markdown))
    assert not re.search(r"^# h", markdown, re.MULTILINE) and "@all" not in markdown
    assert "<img src" not in page


@pytest.mark.browser
def test_the_page_draws_its_waterfalls_and_folds_its_tree(open_page, tmp_path):
    file = tmp_path / "comparison.html"
    file.write_text(rendered.render_html(measured()), encoding="utf-8")
    page, errors = open_page(file)
    page.wait_for_selector("html[data-ready]")
    assert page.locator(".waterfall svg").count() == 2
    rows = page.locator("tr.place-2")
    assert rows.count() > 0 and not rows.first.is_visible()
    page.locator("tr.place-1 button.fold").first.click()
    assert rows.first.is_visible()
    page.locator("#theme").click()
    assert errors == []


@pytest.mark.browser
def test_the_page_shows_hostile_names_as_text(open_page, tmp_path):
    file = tmp_path / "comparison.html"
    file.write_text(rendered.render_html(hostile()), encoding="utf-8")
    page, errors = open_page(file)
    page.wait_for_selector("html[data-ready]")
    assert page.locator("img").count() == 0 and errors == []
