"""Lines of what activation checkpointing computes once more in a thread of autograd's own: those of the first time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from perfkit.capture.agent.order import Order
from perfkit.readers.kineto.trace import read_trace
from tests.support.lines.traces import at
from tests.support.programs.captured import capture
from tests.support.readers.traces import mark, node, op, write

PROGRAM = Path(__file__).parents[1] / "support" / "lines" / "checkpointed.py"
SHAPES = [[8, 8], [8, 8]]
FORWARD = [("h.0", "mm", 11), ("h.0", "add", 12), ("h.0", "mm", 13), ("h.1", "mm", 11), ("h.1", "add", 12)]


def forward(calls: list[tuple[str, str, int]], lined: bool) -> list[Any]:
    """The calls of a forward pass at their lines, in modules."""
    found: list[Any] = [mark("perfkit:step:0", 0, 2000), mark("perfkit:pass:forward", 10, 900)]
    for number, (module, name, line) in enumerate(calls):
        start = 20 + 100 * number
        found += [op(at(line), start, start + 90)] if lined else []
        found += [mark(f"perfkit:module:{module}", start + 10, start + 80)] if module else []
        found += [op(f"aten::{name}", start + 20, start + 70, SHAPES, seq=number)]
    return [*found, mark("perfkit:pass:backward", 1000, 1990)]


def again(calls: list[tuple[str, str]], own: str = "bmm") -> list[Any]:
    """A node in another thread that computes calls once more, and makes one of its own, the gradient of the last."""
    found: list[Any] = node("MmBackward0", 1010, 1900, seq=len(FORWARD) - 1, tid=2)
    for number, (module, name) in enumerate(calls):
        start = 1020 + 100 * number
        found += [mark(f"perfkit:module:{module}", start, start + 90, tid=2)] if module else []
        found += [op(f"aten::{name}", start + 10, start + 80, SHAPES, seq=90 + number, tid=2)]
    return [*found, op(f"aten::{own}", 1800, 1850, [[1, 8, 8], [1, 8, 8]], tid=2)]


def lines_of(folder: Path, calls: list[tuple[str, str, int]], repeated: list[tuple[str, str]]) -> list[int]:
    """The lines of the rows of the backward pass: of what is repeated, and of the gradient."""
    trace = write(folder / "trace.json", [*forward(calls, lined=False), *again(repeated)])
    lines = write(folder / "lines.json", [*forward(calls, lined=True), *again(repeated)])
    rows = read_trace(trace, lines=lines).frame
    rows = rows[rows["pass"].astype(str) == "backward"].sort_values("start_ns")
    return [int(text.partition(":")[2].split()[0]) for text in rows["line"]]


def test_a_block_that_is_repeated_has_its_lines(tmp_path: Path) -> None:
    repeated = [("h.0", "mm"), ("h.0", "add"), ("h.0", "mm")]
    assert lines_of(tmp_path, FORWARD, repeated) == [11, 12, 13, 12]


def test_the_block_counts_not_only_the_names(tmp_path: Path) -> None:
    """h.1 ends early: its calls are those of h.0 too, at other lines here."""
    calls = [*FORWARD[:3], ("h.1", "mm", 21), ("h.1", "add", 22)]
    assert lines_of(tmp_path, calls, [("h.1", "mm"), ("h.1", "add")]) == [21, 22, 22]


def test_calls_outside_of_modules_are_found_by_their_order(tmp_path: Path) -> None:
    calls = [("", "mm", 11), ("", "sin", 12), ("", "mm", 13), ("", "mm", 14), ("", "add", 15)]
    assert lines_of(tmp_path, calls, [("", "sin"), ("", "mm")]) == [12, 13, 15]


def test_where_a_checkpoint_keeps_results_the_rest_is_matched(tmp_path: Path) -> None:
    """Of mm, add, mm, sin in h.0 the first mm is kept: what is left begins with add."""
    calls = [*FORWARD[:3], ("h.0", "sin", 14), ("h.1", "add", 22)]
    assert lines_of(tmp_path, calls, [("h.0", "add"), ("h.0", "sin")]) == [12, 14, 22]


@pytest.mark.slow
@pytest.mark.parametrize("reentrant", ["", "reentrant"])
def test_the_lines_of_a_program_whose_backward_runs_in_another_thread(reentrant: str, tmp_path: Path) -> None:
    """As it does on a GPU, in a thread of autograd's own."""
    found = capture([sys.executable, str(PROGRAM), reentrant], tmp_path, Order(warmup=4, steps=2, lines=True))
    assert found.code == 0, found.stderr.decode()
    rows = found.table().frame
    rows = rows[rows["step"].notna() & rows["module"].astype("string").str.match(r"h\.").fillna(False)]
    lines = {text.rpartition("# ")[2]: number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1)}
    got = rows["line"].astype("string").str.extract(r"checkpointed\.py:(\d+) in forward")[0].astype(float)
    assert set(rows["pass"]) == {"forward", "backward"} and got.notna().all()
    for name in ("up", "down"):
        assert set(got[rows["module"].astype(str).str.endswith(name)]) == {lines[name]}
    products = rows[rows["short_name"].isin(["addmm", "mm"])].groupby("pass", observed=True).size()
    assert products["backward"] > products["forward"] * 2  # the gradients of two factors, and the product once more
