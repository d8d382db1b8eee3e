"""Lines of compiled code and of recomputed calls: those of the model."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perfkit.inductor.sources import source_of
from perfkit.programs.order import Order
from perfkit.readers.columns import Coded
from perfkit.readers.kineto.lines.compiled import frames_of_rows
from perfkit.readers.kineto.lines.join import _recomputed
from perfkit.readers.kineto.lines.stacks import Frame
from tests.support.programs.captured import capture

PROGRAM = Path(__file__).parents[1] / "support" / "lines" / "compiled.py"
STACK = """\
  File "/home/u/my model.py", line 41, in forward
    x = self.h(x)
   File "/home/u/my model.py", line 23, in <lambda>
    return self.up(x)
  File "{site}/transformers/modeling.py", line 7, in forward
    return self.linear(x)
"""


def node(stack: str | None) -> Any:
    return SimpleNamespace(meta={} if stack is None else {"stack_trace": stack})


def test_the_users_innermost_frame_comes_first() -> None:
    stack = STACK.format(site=np.__file__.rpartition("/numpy/")[0])
    assert source_of([node(None), node(stack)]) == "/home/u/my model.py|23|<lambda>"
    alone = "\n".join(stack.splitlines()[4:])
    assert source_of([node(alone)]).endswith("transformers/modeling.py|7|forward")
    assert source_of([node(None), node("no frame")]) == source_of([]) == ""


def test_rows_of_compiled_code_have_the_models_line_where_it_is_the_users() -> None:
    frames = [Frame("train.py", 5, "<module>", True), Frame("model.py", 8, "forward", True)]
    events = np.array([0, 0, -1, 0, -1])  # all launched from line 5, or by nothing that is known
    lined: Any = SimpleNamespace(frames=frames, frame=np.array([0]), library=np.array([-1]))
    library = "/v/lib/python3.12/site-packages/a/b.py|3|forward"
    sources = Coded(["model.py|8|forward", "model.py|9|forward", library], np.array([0, 1, 1, 2, 2]))
    assert frames_of_rows(lined, events, sources).tolist() == [1, 2, 2, 0, 3]
    assert lined.frames[2:] == [
        Frame("model.py", 9, "forward", True),
        Frame(library[: -len("|3|forward")], 3, "forward", True),
    ]
    assert frames_of_rows(lined, events, None).tolist() == [0, 0, -1, 0, -1]


def test_what_a_checkpoint_repeats_has_the_line_of_the_first_time() -> None:
    """Two modules that call mm, add, mm; the second one's backward pass repeats them, up to where it stops early."""
    names = [*[0, 1, 0] * 2, 0, 1, 0, 2]
    module = [*[0] * 3, *[1] * 3, 1, 1, 0, 1]
    nodes = [*[-1] * 6, 20, 20, 20, 20]
    places = SimpleNamespace(module=np.array(module), node=np.array(nodes), step=np.zeros(len(names), int))
    trace: Any = SimpleNamespace(host=_Host(np.array(names)), places=places, calls=np.ones(len(names), bool))
    lines = np.array([10, 11, 12, 20, 21, 22, -1, -1, -1, -1])
    assert _recomputed(trace, lines).tolist() == [10, 11, 12, 20, 21, 22, 20, 21, 10, -1]


class _Host:
    """Events that are all calls, by their names."""

    def __init__(self, name: Any) -> None:
        self.name = name

    def __len__(self) -> int:
        return len(self.name)

    def nearest(self, calls: Any) -> Any:
        return np.arange(len(self))


@pytest.mark.slow
def test_kernels_of_a_compiled_model_have_its_lines(tmp_path: Path) -> None:
    found = capture([sys.executable, str(PROGRAM)], tmp_path, Order(warmup=3, steps=1, lines=True))
    assert found.code == 0, found.stderr.decode()
    rows = found.table().frame
    lines = {text.rpartition("# ")[2]: number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1)}
    rows = rows[rows["step"].notna() & rows["module"].str.match(r"[01](\.|$)").fillna(False)]
    at = rows["line"].str.extract(r"compiled\.py:(\d+) in forward")[0].astype(float)
    assert at.notna().all() and set(rows["pass"]) == {"forward", "backward"}
    assert set(at[rows["module"].str.endswith("up")]) == {lines["up"]}
    assert set(at[rows["short_name"].str.contains("gelu")]) == {lines["gelu"]}
    assert set(at[rows["module"].str.endswith("down")]) == {lines["down"]}
