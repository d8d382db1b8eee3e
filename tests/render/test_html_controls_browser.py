"""Clicks and typing in the HTML report, in headless Chromium: tables, tree, roofline, tabs, theme."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from perfkit.analysis.line_results import LineTime
from tests.render.conftest import Show
from tests.support.render import sample

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def names(page: Page) -> list[str]:
    return page.locator(".panel:not([hidden]) .kernels .name code").all_inner_texts()


def test_stacked_bars_by_kernel_type_and_share(show: Show) -> None:
    page = show(sample.report())
    page.click("#where-controls >> text=By kernel type")
    families = {g.key for b in sample.report().backends for g in b.families}
    page.wait_for_function(f"document.querySelectorAll('#where .barlayer .trace').length === {len(families)}")
    page.click("#where-controls >> text=Share")
    page.wait_for_function("document.querySelector('#where .xtitle').textContent.includes('%')")
    assert page.locator("#where .barlayer .trace").count() == len(families) > 1


def test_table_sorts_by_every_column(show: Show) -> None:
    report = sample.report()
    page = show(report)
    kernels = report.backends[0].kernels
    page.click(".more >> text=Show all 39")
    assert names(page) == [g.key for g in kernels]
    page.click(".kernels button[data-key=headroom]")
    assert names(page)[:5] == [g.key for g in report.backends[0].headroom][:5]
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Headroom")
    page.click(".kernels button[data-key=headroom]")
    assert page.locator("th[aria-sort=ascending]").count() == 1
    assert names(page)[-1] == "aten::_local_scalar_dense", "what is unknown stands last either way"
    page.click(".kernels button[data-key=name]")
    assert names(page) == sorted(names(page), key=str.lower)
    page.keyboard.press("Enter")
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Kernel")


def test_table_filters_by_text_type_and_pass(show: Show) -> None:
    page = show(sample.report())
    page.fill("input[type=search]", "softmax backward")
    assert set(names(page)) == {"aten::_softmax_backward_data", "aten::_log_softmax_backward_data"}
    page.fill("input[type=search]", "")
    page.select_option("select[aria-label='All kernel types']", "embedding")
    assert all("embedding" in name for name in names(page))
    page.select_option("select[aria-label='All passes']", "backward")
    assert names(page) == ["aten::embedding_dense_backward"]
    assert "1 of 39" in page.locator(".controls [role=status]").first.inner_text()
    page.click(".kernels .name")
    assert "Roof time" in page.locator(".kernels .details").inner_text()


def test_a_point_leads_to_its_kernel(show: Show) -> None:
    page = show(sample.report())
    points = page.locator(".panel:not([hidden]) .roofline .points path")
    points.first.scroll_into_view_if_needed()
    point = points.first.bounding_box()
    assert point
    page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    page.wait_for_selector(".hoverlayer .hovertext")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector(".kernels .details")
    assert page.locator("input[type=search]").input_value().startswith("aten::")


def test_dragging_zooms_and_a_double_click_shows_all(show: Show) -> None:
    page = show(sample.report())
    area = page.locator(".panel:not([hidden]) .roofline .area")
    area.scroll_into_view_if_needed()
    ticks = page.locator(".panel:not([hidden]) .roofline .xtick text")
    whole = ticks.all_text_contents()
    box = area.bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.6 * box["height"], steps=3)
    page.mouse.up()
    zoomed = ticks.all_text_contents()
    assert zoomed != whole and len(zoomed) >= 2
    area.dblclick(position={"x": 5, "y": 5})
    assert ticks.all_text_contents() == whole


def test_the_legend_hides_a_group(show: Show) -> None:
    page = show(sample.report())
    chart = page.locator(".panel:not([hidden]) .roofline")
    before = chart.locator(".points path").count()
    chart.locator(".legend button", has_text="matmul").click()
    assert chart.locator(".points path").count() < before
    assert chart.locator(".legend button[aria-pressed=false]").inner_text() == "matmul"


def test_a_roof_can_be_hidden_and_shown(show: Show) -> None:
    page = show(sample.report())
    count = "document.querySelectorAll('.panel:not([hidden]) .roofline .js-line').length"
    page.uncheck("text=triad, L2")
    page.wait_for_function(f"{count} === 2")
    page.check("text=vector fp32")
    page.wait_for_function(f"{count} === 3")


def test_tree_opens_and_closes_by_mouse_and_keyboard(show: Show) -> None:
    page = show(sample.report())
    rows = page.locator(".tree tbody tr")
    start = rows.count()
    page.click(".tree .twig:has-text('11')")
    assert rows.count() > start
    page.keyboard.press("ArrowLeft")
    assert rows.count() == start
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent.trim()").endswith("ln_1")
    page.click("text=Collapse all")
    assert rows.count() == 3
    page.click("text=Expand all")
    assert rows.count() > 100


def test_tree_is_in_the_order_of_the_model_until_a_click_sorts_it(show: Show) -> None:
    report = sample.report()
    assert report.backends[0].tree is not None
    transformer = report.backends[0].tree.children[0]
    blocks = next(node for node in transformer.children if node.name == "h").children
    for block, slower in zip(blocks, (3, 0, 2, 5, 1, 4, 11, 6, 9, 10, 8, 7), strict=True):
        block.total.time_ns += slower * 1e6
    slowest_first = [n.name for n in sorted(blocks, key=lambda n: -n.total.time_ns)]
    page = show(report)

    def shown() -> list[str]:
        names = page.locator(".panel:not([hidden]) .tree tbody .twig code").all_inner_texts()
        return [name for name in names if name.isdigit()]

    def head(name: str) -> str:
        return f".panel:not([hidden]) .tree button.sort:has-text('{name}')"

    sorted_by = ".panel:not([hidden]) .tree th[aria-sort]"
    assert shown() == [str(number) for number in range(12)]
    assert page.locator(sorted_by).count() == 0
    page.click(head("Time"))
    assert shown() == slowest_first
    assert page.get_attribute(sorted_by, "aria-sort") == "descending"
    page.keyboard.press("Enter")  # the head keeps the focus
    assert page.get_attribute(sorted_by, "aria-sort") == "ascending"
    assert shown() == slowest_first[::-1]
    page.click(head("Module"))
    assert shown() == [str(number) for number in range(12)]


def test_tabs_switch_by_mouse_and_keyboard(show: Show) -> None:
    page = show(sample.report())
    page.click("#tab-1")
    assert page.locator("#panel-0").is_hidden()
    assert "perfkit::adamw" in names(page)
    assert "✓ expected" in page.locator("#panel-1").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#tab-2", "aria-selected") == "true"
    assert "is wrong" in page.locator("#panel-2 .banner").inner_text()
    assert page.locator("#panel-2 .roofline .points path").count() > 0


def test_the_first_tab_that_opens_has_kernels(show: Show) -> None:
    """Eager that only judges the others was opened, with nothing but its correctness."""
    report = sample.report()
    report.backends[0] = msgspec.structs.replace(report.backends[0], kernels=[])
    page = show(report)
    assert page.get_attribute("#tab-1", "aria-selected") == "true" and page.locator("#panel-0").is_hidden()
    assert page.locator("#panel-1 .card", has=page.locator("text=Kernels")).count() > 0


def test_light_and_dark(show: Show) -> None:
    page = show(sample.report())
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.click("#theme")
    assert page.evaluate(background) != light
    ink = page.evaluate("getComputedStyle(document.querySelector('#where .xtick text')).fill")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.querySelector('#where .xtick text')).fill") != ink


def test_the_view_of_lines_sorts_filters_and_folds(show: Show) -> None:
    report = sample.report()
    lines = [
        LineTime(file=file, line=line, function=function, code=code, host_ns=host, python_ns=python, kernel_ns=kernel,
                 kernels=1, waits=0, wait_ns=0)
        for file, line, function, code, host, python, kernel in (
            ("train.py", 8, "augment", "x[i].item()", 5e6, 4e6, 1e5),
            ("train.py", 9, "augment", "x * scale", 1e6, 3e5, 9e5),
            ("model.py", 3, "forward", "self.up(x)", 3e6, 1e6, 2e6),
        )
    ]  # fmt: skip
    report.backends[0].lines = lines
    page = show(report)

    def rows(part: str = "code") -> list[str]:
        return page.locator(f".panel:not([hidden]) table.lines .namecell {part}").all_inner_texts()

    host = page.locator(".panel:not([hidden]) table.lines button[data-key=host]")
    assert rows() == ["train.py:8 in augment", "model.py:3 in forward", "train.py:9 in augment"]
    host.click()
    assert rows() == ["train.py:9 in augment", "model.py:3 in forward", "train.py:8 in augment"]
    page.click(".panel:not([hidden]) table.lines button[data-key=kernel]")
    assert rows() == ["model.py:3 in forward", "train.py:9 in augment", "train.py:8 in augment"]
    assert rows(".shapes") == ["self.up(x)", "x * scale", "x[i].item()"]
    card = page.locator(".panel:not([hidden]) .card", has=page.locator("table.lines"))
    card.locator("text=Functions").click()
    assert rows() == ["model.py in forward", "train.py in augment"]
    host.click()
    sums = card.locator("tbody tr").first.locator("td.right").all_inner_texts()
    assert [float(text.replace(",", "")) for text in sums] == [6000, 4300, 1000], "µs, as the rows differ so much"
    card.locator("input[type=search]").fill("model")
    assert rows() == ["model.py in forward"]
