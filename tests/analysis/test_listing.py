"""The cost of each line of a generated program: lines and the rest add up, and no line is guessed."""

from __future__ import annotations

import json
import re

import pytest

from perfkit import table
from perfkit.analysis.listing import lines_of, listing
from perfkit.render.pages import annotated

PROGRAM = "def forward(x):\n  a = linear(x)\n  # why\n  b = gelu(a)  # <b>\n  return b"


def row(order, name, ns, **place):
    return {
        "name": name, "short_name": name, "kind": "cpu_op", "device": "cpu", "order": order, "step": order % 2,
        "start_ns": 1e3 * order, "duration_ns": ns, "bytes_read": 1e3, "bytes_written": 1e3, **place,
    }  # fmt: skip


@pytest.fixture
def made():
    rows = [
        row(0, "addmm", 600.0, **{"pass": "forward", "module": "h.0", "operator": "linear", "range": "generated:2"}),
        row(1, "addmm", 400.0, **{"pass": "forward", "module": "h.0", "operator": "linear", "range": "x/generated:2"}),
        row(2, "copy_", 30.0, **{"pass": "forward", "module": "h.0", "operator": "linear", "range": "generated:2"}),
        row(3, "gelu", 200.0, **{"pass": "forward", "operator": "gelu", "range": "generated:4"}),
        row(4, "lerp_", 100.0, **{"pass": "optimizer", "operator": "lerp_", "range": "Optimizer.step"}),
        row(5, "lerp_", 50.0, **{"pass": "optimizer", "operator": "lerp_"}),
        row(6, "stray", 20.0, range="generated:99"),
    ]
    facts = {"steps": 2}
    found = listing("thunder", "GPT-2", PROGRAM, table.build(rows, facts=facts), None)
    assert found is not None
    return found


def test_lines_and_others_add_up_to_the_step(made):
    assert made.whole.time_ns == pytest.approx(700)
    assert sum(line.cost.time_ns for line in made.lines) == made.on_lines_ns == pytest.approx(615)
    assert made.on_lines_ns + sum(group.time_ns for group in made.others) == pytest.approx(made.whole.time_ns)
    assert sum(line.cost.share for line in made.lines) + sum(g.share for g in made.others) == pytest.approx(1)


def test_a_line_names_its_kernels_and_what_they_serve(made):
    assert [line.number for line in made.lines] == [2, 4]
    first = made.lines[0]
    assert (first.cost.count, first.kernels, first.places) == (1.5, ["addmm", "copy_"], ["forward · h.0 · linear"])
    assert first.cost.bytes == pytest.approx(3e3)
    assert made.lines[1].places == ["forward · gelu"]


def test_what_no_line_owns_is_listed_as_such(made):
    assert [(g.key, g.time_ns) for g in made.others] == [("optimizer: lerp_", 75.0), ("no pass: stray", 10.0)]


def test_only_ranges_of_lines_that_the_text_has_count():
    import pandas as pd

    paths = ["generated:3", "a/generated:1", "generated:0", "generated:4", "generated:x", "regenerated:1", None]
    assert lines_of(pd.Series(paths, dtype=object), 3).tolist() == [3, 1, 0, 0, 0, 0, 0]


def test_a_table_without_rows_has_no_listing():
    assert listing("thunder", "GPT-2", PROGRAM, table.build([]), None) is None


def test_as_text_every_line_stands_with_its_number_and_cost(made):
    text = annotated.render_text(made)
    assert "2 lines 615 ns (87.9%), and 85 ns that no line owns" in text
    program = text[text.index("The program") :].splitlines()[2:]
    assert len(program) == len(PROGRAM.splitlines())
    assert [line[-len(shown) :].strip() for line, shown in zip(program, PROGRAM.splitlines(), strict=True)] == [
        shown.strip() for shown in PROGRAM.splitlines()
    ]
    assert program[1].split() == ["515", "73.6%", "3.00", "–", "1.5", "2", "a", "=", "linear(x)"]
    assert program[2].split() == ["3", "#", "why"]
    assert "optimizer: lerp_" in text


def test_the_page_holds_everything_and_reaches_nothing(made):
    page = annotated.render_html(made)
    assert "default-src 'none'" in page
    assert "http://" not in page and "https://" not in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert data["report"]["listing"]["text"] == PROGRAM.splitlines()
    assert "<b>" not in page.split("</head>")[1].split("<script")[1]
