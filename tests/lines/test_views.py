"""Lines in what `perfkit capture`, `report` and `compare` show, and what the options do."""

import json
import sys
from pathlib import Path

import pytest

from perfkit.analysis import source_lines
from perfkit.analysis.line_results import LineTime
from perfkit.capture.agent.order import LINES, Order
from perfkit.render.sections.lines import lines_table
from tests.lines.test_planted import PROGRAM, planted
from tests.support.programs.captured import capture
from tests.support.sweeps import rest

pytestmark = pytest.mark.slow


def captured(run_cli, out, *words, options=()):
    found = run_cli(
        ["capture", "--warmup", "4", "--steps", "2", *options, "--out", out, "--", *words], cwd=PROGRAM.parent
    )
    assert found.rc == 0, found.stderr
    return found, json.loads((out / "report.json").read_text())


def test_a_graph_break_has_its_line(run_cli, tmp_path):
    _, report = captured(run_cli, tmp_path / "run", sys.executable, "planted.py", "break")
    found = next(f for f in report["backends"][0]["findings"] if f["name"] == "graph-breaks")
    assert [(Path(line["file"]).name, line["line"]) for line in found["lines"]] == [
        ("planted.py", planted()["forward"])
    ]


def test_a_healthy_twin_has_no_graph_breaks(run_cli, tmp_path):
    _, report = captured(run_cli, tmp_path / "run", sys.executable, "planted.py", "break", "healthy")
    assert not [found for found in report["backends"][0]["findings"] if found["name"] == "graph-breaks"]


@pytest.mark.parametrize("twin", ["", rest("healthy")])
def test_a_late_rank_has_its_line(twin, tmp_path):
    """Two ranks, of which the second sleeps before its forward pass; in the healthy twin it does not."""
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(PROGRAM),
        "rank",
        *filter(None, [twin]),
    ]
    found = capture(words, tmp_path, Order(warmup=4, steps=2), fresh=True)
    tables = [found.table(number) for number in range(2)]
    facts = [(table.facts, 2) for table in tables]
    longer = [(line.line, line.function) for line in source_lines.longer(*facts[1], facts[:1])]
    if twin:
        assert (planted()["uneven"], "uneven") not in longer
    else:
        assert longer[0] == (planted()["uneven"], "uneven")


def test_the_text_and_the_comparison_show_lines(run_cli, tmp_path):
    slow, _ = captured(run_cli, tmp_path / "slow", sys.executable, "planted.py", "collate")
    captured(run_cli, tmp_path / "fast", sys.executable, "planted.py", "collate", "healthy")
    place = f"planted.py:{planted()['tokenized']} in tokenized"
    assert f"at {place}" in slow.stderr
    compared = run_cli(["compare", tmp_path / "slow", tmp_path / "fast"])
    assert place in compared.stdout.partition("Lines that changed")[2]
    assert (tmp_path / "slow" / "program" / "lines.json.gz").is_file()


def test_without_lines_nothing_more_is_recorded(tmp_path):
    words = [sys.executable, str(PROGRAM), "augment", "healthy"]
    found = capture(words, tmp_path, Order(warmup=4, steps=2, lines=False))
    path, result = found.recorded[0]
    assert not (path / LINES).exists()
    assert not result.notes
    assert "lines" not in found.table().facts


def test_a_program_that_ends_too_early_has_no_lines_and_says_so(tmp_path):
    words = [sys.executable, str(PROGRAM), "augment", "healthy"]
    path, result = capture(words, tmp_path, Order(warmup=11, steps=2)).recorded[0]
    assert not (path / LINES).exists()
    assert any("before the step in which" in note for note in result.notes)


def test_the_table_of_lines_leaves_out_what_no_line_has():
    row = LineTime(
        file="a.py", line=3, function="f", host_ns=2e6, python_ns=1e6, kernel_ns=5e5, kernels=2, waits=0, wait_ns=0,
    )  # fmt: skip

    class Backend:
        lines = [row, row]

    found = lines_table(Backend(), 1)
    assert [column.header for column in found.columns] == ["line", "host", "Python", "launches"]
    assert found.rows[0][0].text == "a.py:3 in f"
    assert found.notes[0] == "1 more line is not shown."


FACTS = {
    "lines": [
        {"file": "a.py", "line": 3, "function": "f", "exact": False, "compiled": True, "code": "g(x)", "library": "",
         "host_ns": 4e6, "python_ns": 0.0, "between_ns": 0.0, "loading_ns": 0.0, "idle_ns": None, "kernel_ns": 6e6,
         "wait_ns": 0.0, "waits": 0.0, "kernels": 2.0}
    ],
    "unknown_lines": {"host_ns": 2e6, "python_ns": 1e6, "kernel_ns": 8e6, "kernels": 4.0, "waits": 0.0, "wait_ns": 0.0},
}  # fmt: skip


def test_the_table_of_lines_accounts_for_all_kernels():
    rows = source_lines.table(FACTS, 2)
    assert [(row.file, row.kernel_ns, row.kernels, row.host_ns) for row in rows] == [
        ("a.py", 3e6, 1.0, 2e6), ("", 4e6, 2.0, 1e6),
    ]  # fmt: skip

    class Backend:
        lines = [rows[0], *rows]

    found = lines_table(Backend(), 1)
    assert [row[0].text for row in found.rows] == ["a.py:3 in f (calls compiled code)", "no line"]
    assert found.notes[0] == "1 more line is not shown."
    assert source_lines.table({"lines": FACTS["lines"], "unknown_lines": {"kernel_ns": 0.0}}, 2) == rows[:1]
    assert source_lines.table({"lines": [], "unknown_lines": {"kernel_ns": 5.0}}, 1) == []


def test_lines_of_the_kernel_table_that_the_facts_lack_are_read():
    text = "b.py:7 in h (calls compiled code)"
    found = source_lines.by_lines({}, {"b.py:9 in h": 1.0, text: 3.0, "c.py:1 in k (its first line)": 1.0})
    assert [(one.line, one.function, one.exact, one.compiled, one.share) for one in found] == [
        (7, "h", False, True, 0.6), (9, "h", True, False, 0.2), (1, "k", False, False, 0.2),
    ]  # fmt: skip
