"""Profiles recorded in parts, and the turns in which a comparison records them."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfkit.capture.agent.tracing import profiler as profilers
from perfkit.compare import launching
from perfkit.cost import CostModel
from perfkit.readers.kineto.trace import read_trace
from perfkit.run import profile


def recorder(run: Any) -> profile.StepRecorder:
    program: Any = SimpleNamespace(model=torch.nn.Tanh(), keeps_modules=True)
    settings: Any = SimpleNamespace(device="cpu", profile_memory=False, lines=False, ranks=1)
    return profile.StepRecorder(program, settings, run)


def test_parts_are_one_profile_and_what_happens_between_them_is_no_step(tmp_path: Path) -> None:
    ran: list[int] = []
    x = torch.ones(1000)

    def run(index: int) -> None:
        ran.append(index)
        torch.tanh(x)

    one = recorder(run)
    one.start()
    one.steps(2)
    torch.exp(x)
    one.steps(1)
    recorded = one.finish()
    assert ran == [0, 1, 2, 3] and len(recorded.step_ns) == 3
    table = read_trace(profile.write(recorded, tmp_path).trace, costs=CostModel())
    frame = table.frame
    assert frame[frame["step"].notna()]["name"].tolist() == ["aten::tanh"] * 3
    assert frame["step"].dropna().tolist() == [0, 1, 2] and "aten::exp" in frame[frame["step"].isna()]["name"].tolist()


@pytest.mark.parametrize("costs", [(2800.0, 1400.0), (1400.0, 2800.0)])
def test_a_slow_moment_before_or_after_does_not_raise_the_cost_of_an_event(
    costs: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = iter(costs)
    monkeypatch.setattr(profile.profilers, "event_cost_ns", lambda: next(measured))
    one = recorder(lambda index: None)
    one.start()
    one.steps(1)
    assert one.finish().event_cost_ns == 1400 and next(measured, None) is None


def test_no_other_profiler_starts_before_the_trace_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second session clears the GPU's records of the first, and leaves zeros in their place: a CPU's stay."""
    called: list[str] = []

    def logged(owner: Any, name: str, word: str) -> None:
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, **named: (called.append(word), real(*given, **named))[1])

    for name, word in (("_prepare_profiler", "start"), ("_enable_profiler", "start"), ("_disable_profiler", "stop")):
        logged(torch.autograd.profiler, name, word)
    logged(profilers, "export", "export")
    one = recorder(lambda index: torch.ones(3).exp_())
    one.start()
    one.steps(2)
    called.clear()
    profile.write(one.finish(), tmp_path)
    assert called[:2] == ["stop", "export"] and called.count("export") == 1
    assert "start" in called[2:], "what an event costs is measured by a session of its own"


@pytest.mark.parametrize("at", [0, 2])
def test_a_step_that_fails_leaves_nothing_switched_on(at: int) -> None:
    def run(index: int) -> None:
        if index == at:
            raise ValueError("this step fails")

    one = recorder(run)
    assert gc.isenabled()

    def record() -> None:
        one.start()
        one.steps(3)

    with pytest.raises(ValueError, match="this step fails"):
        record()
    assert gc.isenabled() and not torch.autograd._profiler_enabled()


def test_sides_are_profiled_there_and_back_in_parts() -> None:
    """A burst on the machine falls on a part of every side's steps."""
    called: list[tuple[int, str, int | None]] = []

    class Told:
        def __init__(self, side: int) -> None:
            self.side = side

        def call(self, command: str, steps: int | None = None, beside: int | None = None) -> None:
            called.append((self.side, command, steps))

        begin = call

        def result(self) -> None:
            pass

    children: Any = [Told(0), Told(1)]
    launching._profile(children, [1, 0], [48, 48], long=False)
    turns = [(side, steps) for side, command, steps in called if command == "record_steps"]
    assert turns == [(1, 2), (0, 2), (0, 2), (1, 2)] * 12
    assert called[:2] == [(1, "start_recording", 48), (0, "start_recording", 48)]
    assert called[-2:] == [(0, "finish_recording", None), (1, "finish_recording", None)]
    called.clear()
    launching._profile(children, [1, 0], [24, 4], long=False)
    turns = [(side, steps) for side, command, steps in called if command == "record_steps"]
    assert [s for side, s in turns if side == 0] == [1] * 24 and [s for side, s in turns if side == 1] == [1] * 4
    called.clear()
    launching._profile(children, [1, 0], [4, 4], long=True)
    turns = [(side, steps) for side, command, steps in called if command == "record_steps"]
    assert turns == [(1, 1), (0, 1), (0, 1), (1, 1)] * 2, "long steps too"


def test_short_steps_are_profiled_often_and_long_ones_a_few_times() -> None:
    plan = launching.StoppingRule(profiled_steps=4)
    assert [launching._profiled_steps(turn, plan) for turn in (1, 2, 10, 100)] == [4, 8, 40, 48]


def test_a_launch_with_an_unusable_profile_has_no_tables_of_any_side(tmp_path: Path) -> None:
    """Launches are compared in pairs: what one side lacks the others leave out."""

    def child(name: str, why: str) -> Any:
        found = {"trace": "t.json.gz", "unusable": why}
        return SimpleNamespace(name=name, begin=lambda *_, **__: None, result=lambda: found)

    groups = [[child("a", ""), child("b", "It has no times. Try again.")], [child("a", ""), child("b", "")]]
    assert launching._read(groups, [tmp_path / "0", tmp_path / "1"], tmp_path) == [
        (["", ""], "b: It has no times. Try again."),
        (["1/0/kernels.parquet", "1/1/kernels.parquet"], ""),
    ]
