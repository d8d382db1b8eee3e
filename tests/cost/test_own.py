"""Costs that a user registers: for operators and kernels, in a process, in a file, through torch's FLOP counter."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import perfkit
from perfkit.capture.agent.recording import own_costs
from perfkit.cost import Call, Cost, CostModel, TensorSpec, own
from perfkit.errors import InputError, UsageError
from perfkit.readers.kineto.trace import read_trace
from perfkit.table import RESOURCES
from tests.support.readers.traces import Event, event, mark, op, write


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(own, "_REGISTERED", {})
    monkeypatch.delenv(own.FILE, raising=False)
    own.load.cache_clear()


def scale(call: Call) -> Cost:
    x = call.tensor(0)
    return Cost({"vector_fp32": 1.0 * x.numel}, x.nbytes, x.nbytes)


def launched(*names: str) -> list[Event]:
    """A step in which `mylib::scale` of a 4×8 tensor launches kernels of these names, 2 blocks each."""
    events = [mark("ProfilerStep#1", 0, 100), op("mylib::scale", 10, 60, [[4, 8]])]
    for number, name in enumerate(names):
        at = 11 + number
        shape = {"device": 0, "stream": 7, "correlation": number, "grid": [2, 1, 1], "block": [64, 1, 1]}
        events.append(event("cuda_runtime", "cudaLaunchKernel", at, at + 0.5, correlation=number))
        events.append(event("kernel", name, 20 + 10 * number, 29 + 10 * number, pid=0, tid=7, **shape))
    return events


def rows(folder: Path, *names: str, **more: Any) -> tuple[list[tuple[str, float, float]], list[str]]:
    """Name, FLOP and bytes of each kernel, and the warnings."""
    table = read_trace(write(folder / "t.json", launched(*names)), **more)
    return list(zip(table.frame["name"], table.flop, table.bytes, strict=True)), table.warnings


def same(found: list[tuple[str, float, float]], wanted: list[tuple[str, float, float]]) -> bool:
    return len(found) == len(wanted) and all(
        a[0] == b[0] and a[1:] == pytest.approx(b[1:], nan_ok=True) for a, b in zip(found, wanted, strict=True)
    )


def test_an_operator_and_a_kernel(tmp_path: Path) -> None:
    assert same(rows(tmp_path, "k")[0], [("k", math.nan, math.nan)])
    assert perfkit.register_cost("mylib::scale")(scale) is scale
    assert same(rows(tmp_path, "k")[0], [("k", 32, 256)])
    seen: list[Any] = []

    def other(launch: Any) -> Cost:
        seen.append((launch.name, launch.tensor(0).shape, launch.grid, launch.block))
        return Cost({"matrix_bf16": 5.0}, 1.0, 2.0)

    # The kernel has its own cost, and the operator keeps its for its other kernel.
    perfkit.register_cost("other", other)
    assert same(rows(tmp_path, "void ns::other<int>(float*)", "k")[0][0:1], [("void ns::other<int>(float*)", 5, 3)])
    assert same(rows(tmp_path, "other", "k")[0], [("other", 5, 3), ("k", 32, 256)])
    assert seen[-1] == ("other", (4, 8), (2, 1, 1), (64, 1, 1))
    perfkit.register_cost("aten::mm", Cost({"matrix_fp32": 1.0}, 2.0, 3.0))
    assert CostModel().cost(Call("aten::mm", ())) == Cost({"matrix_fp32": 1.0}, 2.0, 3.0)


@pytest.mark.parametrize("on_gpu", [True, False])
def test_what_an_operator_calls_is_in_its_cost(tmp_path: Path, on_gpu: bool) -> None:
    """Else the FLOP of the product inside would count twice, and the time inside not at all."""
    inner = op("aten::mm", 10.5, 40, [[4, 2], [2, 8]])
    events = [*launched(*(["gemm"] if on_gpu else [])), inner]
    perfkit.register_cost("mylib::scale", scale)
    table = read_trace(write(tmp_path / "t.json", events))
    assert table.flop.sum() == 32 and table.bytes.sum() == 256
    row = table.frame[table.flop > 0].iloc[0]
    assert row["duration_ns"] == (9_000 if on_gpu else 50_000)
    perfkit.register_cost("mylib::scale", lambda call: None)
    assert read_trace(tmp_path / "t.json").flop.sum() == 2 * 4 * 2 * 8


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda call: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda call: Cost({"vector_fp32": -1.0}), "gave the negative number -1 for vector_fp32"),
        (lambda call: Cost({}, math.nan), "gave nan for bytes_read, which is not a number"),
        (lambda call: Cost({}, math.inf), "gave inf for bytes_read"),
        (lambda call: Cost({"vector_fp32": "7"}), "gave str for vector_fp32, not a number"),
        (lambda call: Cost({"gpu": 1.0}), "names gpu, which is not a unit"),
        (lambda call: 12.0, "gave float, not a perfkit.cost.Cost"),
        (lambda call: Cost({"vector_fp32": call.tensor(9).numel}), "raised TypeError: mylib::scale: argument 9"),
    ],
)
def test_a_wrong_function_is_a_sentence_and_its_row_unknown(tmp_path: Path, function: Any, why: str) -> None:
    perfkit.register_cost("mylib::scale", function)
    found, warnings = rows(tmp_path, "k")
    assert same(found, [("k", math.nan, math.nan)])
    assert [w for w in warnings if w.startswith(f"the registered cost of mylib::scale is left out: it {why}")]


def test_wrong_registrations_are_refused() -> None:
    for name, function in (("", scale), ("mylib::scale", 7)):
        with pytest.raises(UsageError):
            perfkit.register_cost(name, function)  # type: ignore[arg-type]
    assert {*RESOURCES} == own.UNITS


class Packet:
    """What torch calls an OpOverloadPacket."""

    def __init__(self, name: str) -> None:
        self._qualified_op_name = name


def test_formulas_of_torchs_counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry as torch.utils.flop_counter has it: functions of shapes by operator."""

    def formula(x: Any, *rest: Any, out_val: Any = None) -> int:
        return 3 * math.prod(x)

    packets = {Packet(name): formula for name in ("mylib::scale", "aten::mm")}
    monkeypatch.setitem(sys.modules, "torch.utils.flop_counter", SimpleNamespace(flop_registry=packets))
    assert same(rows(tmp_path, "k")[0], [("k", 96, math.nan)])
    mm = Call("aten::mm", (TensorSpec((2, 3), "fp32"), TensorSpec((3, 4), "fp32")))
    assert CostModel().cost(mm).total_flop == 48  # torch's own formulas replace none of perfkit's


FILE = """
import perfkit
from perfkit.cost import Cost

@perfkit.register_cost("mylib::scale")
def scale(call):
    return Cost({"vector_fp32": 2.0 * call.tensor(0).numel}, 1.0, 1.0)
"""


def test_a_file_of_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "costs.py"
    file.write_text(FILE)
    monkeypatch.setenv(own.FILE, str(file))
    assert same(rows(tmp_path, "k")[0], [("k", 64, 2)])
    for text, why in (
        ("1 / 0", "fails: ZeroDivisionError"),
        ("x = 1", "registers no cost"),
        ("(", "fails: SyntaxError"),
    ):
        file.with_name("wrong.py").write_text(text)
        own.load.cache_clear()
        with pytest.raises(InputError, match=why):
            own.load(str(file.with_name("wrong.py")))
    with pytest.raises(InputError, match="is not a Python file of costs"):
        own.load(str(tmp_path / "none.py"))


def test_the_command_line(tmp_path: Path, run_cli: Any) -> None:
    trace, file = write(tmp_path / "t.json", launched("k")), tmp_path / "costs.py"
    file.write_text(FILE)
    shown = run_cli(["report", str(trace), "--costs", str(file), "--json"])
    assert shown.rc == 0 and json.loads(shown.stdout)["backends"][0]["counted_flop"] == 64
    wrong = run_cli(["report", str(trace), "--costs", str(tmp_path / "none.py")])
    assert wrong.rc == 2 and "is not a Python file of costs" in wrong.stderr


def test_what_a_program_leaves_of_its_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's own functions are gone when its trace is read: it leaves their results, by the calls in its trace."""
    trace = write(tmp_path / "t.json", launched("other", "k"))
    perfkit.register_cost("mylib::scale", scale)
    perfkit.register_cost("other", lambda launch: Cost({"matrix_bf16": 1.0 * launch.grid[0]}, 1.0, 2.0))
    perfkit.register_cost("k", lambda launch: launch.tensor(0))
    left = json.loads(json.dumps(own_costs.recorded(trace)))
    monkeypatch.setattr(own, "_REGISTERED", {})
    costs = CostModel()
    costs.own, problems = own.of_recorded(left, own_costs.call_of)
    assert same(rows(tmp_path, "other", "k2", costs=costs)[0], [("other", 2, 3), ("k2", 32, 256)])
    assert list(problems) == ["k"] and "argument 0 is not a tensor" in problems["k"]
