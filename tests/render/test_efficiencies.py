"""The mark of what is faster than its roof allows: where it stands, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from perfkit.analysis.report.analyse import analyse_table
from perfkit.analysis.results import Group, Report
from perfkit.render import csv, html, json, markdown, run, tables, terminal
from perfkit.render.efficiencies import efficiencies, notes
from tests.support.analysis import examples
from tests.support.render import sample

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[[str | Path], "tuple[Page, list[str]]"]
NAMES = ["gelu", "exp", "tanh", "sin"]
FLAG = Group(
    key="forward", count=4, time_ns=100e3, share=1, efficiency=1.1, above_roof=True, above_ns=40e3, above_kernels=NAMES
)
PLAIN = Group(key="backward", count=4, time_ns=100e3, share=1, efficiency=1.04, above_ns=4e3, above_kernels=["gelu"])


def flagged() -> Report:
    """One call of `exp`, at 125 % of its roof, in h.1; the blocks h.0 and h.2 are without fault."""
    report = analyse_table(examples.kernel_table(), examples.ceilings(), "some/profile.json")
    assert [g.key for g in report.backends[0].passes if g.above_roof] == ["backward"]
    return report


def test_only_what_is_flagged_is_red() -> None:
    cells = efficiencies([FLAG, PLAIN, None]).cells
    assert [(c.text, c.tone) for c in cells] == [("!110.0", "bad"), ("104.0", "good"), ("–", "")]


def test_a_note_says_how_much_lies_in_which_kernels() -> None:
    (note,) = notes([("forward", FLAG), ("backward", PLAIN)])
    assert note.startswith("! kernels that are faster than their roof allows: their measurement or the model")
    assert note.endswith("Share of the time: forward 40.0% (gelu, exp, tanh, …).")
    own = msgspec.structs.replace(FLAG, key="gelu", above_kernels=["gelu"])
    assert notes([("gelu", own)])[0].endswith("Share of the time: gelu 40.0%.")
    many = notes([(f"h.{i}", FLAG) for i in range(9)])[0]
    assert "h.5 40.0%" in many and "h.6" not in many and many.endswith(", and 3 more.")
    assert notes([("backward", PLAIN)]) == []


def test_a_note_names_the_kernels_that_l2_helped() -> None:
    helped = msgspec.structs.replace(PLAIN, key="add", example="aten::add", helped_ns=50e3)
    assert notes([("add", helped), ("add", helped)]) == [
        "A cache held a part of the bytes of add: what is so faster than measured counts as at its roof."
    ]
    assert notes([("add", msgspec.structs.replace(helped, helped_ns=9e3))]) == []


def test_every_table_marks_the_same_groups() -> None:
    report = flagged()
    backend = report.backends[0]
    for made in (
        run.backends(report),
        run.side_by_side("Passes", "pass", [backend], lambda b: b.passes),
        tables.groups("Passes", "pass", backend.passes, backend.tree.total if backend.tree else None),
        tables.kernels("Kernels", backend.kernels),
        tables.tree(backend.tree) if backend.tree else None,
    ):
        assert made is not None
        column = next(c for c in made.columns if c.header == "eff.")
        marked = [i for i, cell in enumerate(column.cells) if cell.text.startswith("!")]
        red = [i for i, cell in enumerate(column.cells) if cell.tone == "bad"]
        assert red == marked[: -1 if made.total else None] != []  # a row of totals is strong, not red
        assert any("(exp)" in note or "exp 100" in note for note in made.notes)


def test_every_format_says_it() -> None:
    report = flagged()
    for text in (terminal.render(report, limit=None), markdown.render(report)):
        assert "!125" in text and "faster than their roof allows" in text
    exp = next(line for line in csv.render(report).splitlines() if ",exp," in line)
    assert ",True,40000.0," in exp
    backend = msgspec.json.decode(json.render(report))["backends"][0]
    assert (backend["above_roof"], backend["above_ns"], backend["above_kernels"]) == (True, 40e3, ["exp"])


@pytest.mark.browser
def test_the_page_marks_what_is_flagged_and_its_title_says_why(open_page: OpenPage, tmp_path: Path) -> None:
    report = sample.report()
    backend = report.backends[0]
    assert backend.tree is not None
    node = backend.tree.children[0]
    node.total = msgspec.structs.replace(FLAG, time_ns=node.total.time_ns, above_ns=0.4 * node.total.time_ns)
    backend.passes[0] = msgspec.structs.replace(backend.passes[0], efficiency=1.06)  # not flagged: not red
    path = tmp_path / "report.html"
    path.write_text(html.render(report), encoding="utf-8")
    page, errors = open_page(path)
    page.wait_for_selector("html[data-ready]")
    red = page.locator(".bar.bad")
    assert [text.strip() for text in red.all_inner_texts()] == ["! 110.0%"]
    assert red.nth(0).locator("xpath=ancestor::table[contains(@class, 'tree')]").count() == 1
    assert red.nth(0).get_attribute("title") == (
        "40.0% of its time is in kernels faster than their roof allows: gelu, exp, tanh, …. Their measurement or the "
        "model of their work is broken."
    )
    assert errors == []
