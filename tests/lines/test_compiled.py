"""Lines of compiled code: those of the model, else that of the call."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perfkit.capture.agent.order import Order
from perfkit.columns import Coded
from perfkit.inductor.sources import source_of
from perfkit.readers.kineto.lines.compiled import frames_of_rows
from perfkit.readers.kineto.lines.stacks import SourceFrame
from perfkit.readers.kineto.trace import read_trace
from tests.support.lines.traces import at
from tests.support.programs.captured import capture
from tests.support.readers.traces import mark, node, op, write

PROGRAM = Path(__file__).parents[1] / "support" / "lines" / "compiled.py"
STACK = """\
  File "/home/u/my model.py", line 41, in forward
    x = self.h(x)
   File "/home/u/my model.py", line 23, in <lambda>
    return self.up(x)
  File "{site}/transformers/modeling.py", line 7, in forward
    return self.linear(x)
"""


def stacked(stack: str | None) -> Any:
    return SimpleNamespace(meta={} if stack is None else {"stack_trace": stack})


def test_the_users_innermost_frame_comes_first() -> None:
    stack = STACK.format(site=np.__file__.rpartition("/numpy/")[0])
    assert source_of([stacked(None), stacked(stack)]) == "/home/u/my model.py|23|<lambda>"
    alone = "\n".join(stack.splitlines()[4:])
    assert source_of([stacked(alone)]).endswith("transformers/modeling.py|7|forward")
    assert source_of([stacked(None), stacked("no frame")]) == source_of([]) == ""


def test_rows_of_compiled_code_have_the_models_line_where_it_is_the_users() -> None:
    frames = [SourceFrame("train.py", 5, "<module>", True), SourceFrame("model.py", 8, "forward", True)]
    events = np.array([0, 0, -1, 0, -1])  # all launched from line 5, or by nothing that is known
    lined: Any = SimpleNamespace(frames=frames, frame=np.array([0]), library=np.array([-1]))
    library = "/v/lib/python3.12/site-packages/a/b.py|3|forward"
    sources = Coded(["model.py|8|forward", "model.py|9|forward", library], np.array([0, 1, 1, 2, 2]))
    assert frames_of_rows(lined, events, sources).tolist() == [1, 2, 2, 0, 3]
    assert lined.frames[2:] == [
        SourceFrame("model.py", 9, "forward", True),
        SourceFrame(library[: -len("|3|forward")], 3, "forward", True),
    ]
    assert frames_of_rows(lined, events, None).tolist() == [0, 0, -1, 0, -1]


def compiled_step() -> list[Any]:
    """A step that calls compiled code at line 5, and in the backward pass its backward; a sum at line 6 is not."""
    graph = "## Call CompiledFxGraph abc ##"
    return [
        mark("perfkit:step:0", 0, 1000),
        mark("perfkit:pass:forward", 10, 400),
        op("CompiledFunction", 20, 300, seq=3),
        op(graph, 30, 290) | {"cat": "user_annotation"},
        op("aten::mm", 40, 100, [[8, 8], [8, 8]]),
        op("triton_poi_fused_gelu_0", 110, 200, [[8, 8]]),
        op("aten::sum", 310, 390, [[8, 8]]),
        mark("perfkit:pass:backward", 400, 900),
        *node("CompiledFunctionBackward", 410, 890, seq=3),
        op(graph, 420, 880) | {"cat": "user_annotation"},
        op("aten::bmm", 430, 800, [[1, 8, 8], [1, 8, 8]]),
    ]


@pytest.mark.parametrize("marked", ["user_annotation", "cpu_op"])
def test_compiled_code_without_notes_has_the_line_that_calls_it(marked: str, tmp_path: Path) -> None:
    """Forwards and backwards; a run of a graph may be an operator in one trace and an annotation in the other."""
    step = [one | {"cat": marked} if one["name"].startswith("##") else one for one in compiled_step()]
    first = write(tmp_path / "trace.json", step)
    lines = write(
        tmp_path / "lines.json",
        [*compiled_step(), op(at(5), 15, 305), op(at(6), 306, 395), op(at(7), 402, 899)],
    )
    table = read_trace(first, lines=lines)
    found = dict(zip(table.frame["short_name"], table.frame["line"], strict=True))
    called = "u/train.py:5 in main (calls compiled code)"
    assert [found[name] for name in ("mm", "bmm", "sum")] == [called, called, "u/train.py:6 in main"]
    (entry,) = [one for one in table.facts["lines"] if one["compiled"]]
    assert (entry["line"], entry["exact"], entry["text"]) == (5, False, called)


@pytest.mark.slow
def test_kernels_of_a_compiled_model_have_its_lines(tmp_path: Path) -> None:
    found = capture([sys.executable, str(PROGRAM)], tmp_path, Order(warmup=3, steps=1, lines=True))
    assert found.code == 0, found.stderr.decode()
    rows = found.table().frame
    lines = {text.rpartition("# ")[2]: number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1)}
    rows = rows[rows["step"].notna() & rows["module"].str.match(r"[01](\.|$)").fillna(False)]
    at = rows["line"].str.extract(r"compiled\.py:(\d+) in forward")[0].astype(float)
    assert at.notna().all() and set(rows["pass"]) == {"forward", "backward"}
    everything = found.table().frame
    launched = everything[everything["step"].notna() & everything["pass"].isin(["forward", "backward", "optimizer"])]
    assert launched["line"].notna().all()
    assert set(at[rows["module"].str.endswith("up")]) == {lines["up"]}
    assert set(at[rows["short_name"].str.contains("gelu")]) == {lines["gelu"]}
    assert set(at[rows["module"].str.endswith("down")]) == {lines["down"]}
