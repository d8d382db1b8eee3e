"""The page of an HTML report, open in a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perfkit.analysis.results import Report
from perfkit.render import html

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[[str | Path], "tuple[Page, list[str]]"]
Show = Callable[[Report], "Page"]


@pytest.fixture
def show(open_page: OpenPage, tmp_path: Path) -> Iterator[Show]:
    """Open the report's page; whatever happens in the test, its console must have stayed silent."""

    def open_(report: Report) -> Page:
        path = tmp_path / "report.html"
        path.write_text(html.render(report), encoding="utf-8")
        page, found = open_page(path)
        errors.append(found)
        page.wait_for_selector("html[data-ready]")
        page.wait_for_selector(".panel:not([hidden]) .roofline .scatterlayer")
        return page

    errors: list[list[str]] = []
    yield open_
    assert errors == [[] for _ in errors]
