"""Measuring in turns: what a launch leaves behind, when it stops, and what a failure leaves."""

from __future__ import annotations

import json
import statistics
from inspect import signature
from pathlib import Path

import pytest

from perfkit.analysis.compare import compare
from perfkit.analysis.sides import ROUND
from perfkit.capture import comparison, launching
from perfkit.capture.launching import Plan, Program, _stop
from perfkit.cli.compare import compare as cli_compare
from perfkit.comparing import load, target_of
from perfkit.errors import RunFailed, UsageError
from perfkit.launches import Launch, Turn, read_measurement
from perfkit.run_folder import TIMED_ALONE, Settings

SMALL = Path(__file__).parents[1] / "capture" / "small.py"
QUICK = Plan(launches=1, turn_seconds=1e-9, warmup_seconds=0.2, profiled_steps=2)  # a turn is one step


def program(label: str, **changes) -> Program:
    given = {"workload": str(SMALL), "preset": "one", "batch_size": 32, "steps": 4, "warmup": 1, **changes}
    return Program(label, Settings(**given), "eager")


def measure(folder: Path, plan: Plan = QUICK, check: bool = False, overwrite: bool = False) -> None:
    sides = [(program("A"), "run", {}), (program("B"), "run", {})]
    comparison.measure_into(folder, sides, plan, check, overwrite, lambda who, what: None)


@pytest.mark.slow
def test_a_launch_alternates_and_is_read_as_sides(tmp_path):
    folder = tmp_path / "pair"
    measure(folder)
    (launch,) = read_measurement(folder).launches
    sides = [turn.side for turn in launch.turns]
    assert sides in ([0, 1, 1, 0] * 2, [1, 0, 0, 1] * 2)
    assert [turn.round for turn in launch.turns] == [0] * 4 + [1] * 4
    assert all(turn.samples_ns for turn in launch.turns) and all(launch.peak_memory_bytes)
    assert all(len(warmup) >= 4 for warmup in launch.warmup_ns)
    loaded = load(target_of(folder))
    assert [(s.label, s.steps, s.step.unit, len(s.step.values)) for s in loaded] == [
        ("A", 2, ROUND, 2), ("B", 2, ROUND, 2),
    ]  # fmt: skip
    found = compare(loaded)
    assert found.pairs[0].step.judgement.verdict == "cannot tell", "two rounds show nothing"
    assert found.pairs[0].waterfall.basis == "timed" if loaded[0].backend.accounting else True
    assert [p.name for p in tmp_path.iterdir()] == ["pair"]
    with pytest.raises(UsageError, match="holds a comparison already"):
        measure(folder)


@pytest.mark.slow
def test_each_launch_says_anew_how_long_a_turn_is(tmp_path, monkeypatch):
    """Equals that keep turns of other lengths through all launches would be told apart by that."""
    lengths = iter([3, 1, 1, 2])
    monkeypatch.setattr(launching, "_turn_steps", lambda warmup, plan: next(lengths))
    measure(tmp_path / "pair", Plan(launches=2, rounds=1, profiled_steps=0))
    launches = read_measurement(tmp_path / "pair").launches
    taken = [{turn.side: len(turn.samples_ns) for turn in launch.turns} for launch in launches]
    assert taken == [{0: 3, 1: 1}, {0: 1, 1: 2}]


@pytest.mark.slow
def test_checked_sides_carry_their_correctness(tmp_path, monkeypatch):
    monkeypatch.setattr("perfkit.capture.memory.available_bytes", lambda: 2_000_000_000)
    measure(tmp_path / "pair", check=True)
    checked = json.loads((tmp_path / "pair" / "run" / "run.json").read_text())["backends"]
    assert [TIMED_ALONE in backend["warnings"] for backend in checked] == [True]
    sides = load(target_of(tmp_path / "pair"))
    assert all(side.backend.correctness.ok for side in sides)
    assert (tmp_path / "pair" / "run" / "run.json").is_file()
    assert compare(sides).pairs[0].waterfall.basis == "timed"
    (launch,) = read_measurement(tmp_path / "pair").launches
    for place, side in enumerate(sides):
        assert TIMED_ALONE not in side.backend.warnings, "the launches keep both in memory"
        timed = statistics.median(ns for turn in launch.turns if turn.side == place for ns in turn.samples_ns)
        assert side.backend.accounting.plain_step_ns == timed, "the checked run's own steps are another process's"


@pytest.mark.slow
def test_a_side_that_fails_ends_it_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("SMALL_RAISES", "1")
    with pytest.raises(RunFailed, match="ValueError: the second layer"):
        measure(tmp_path / "pair")
    assert list(tmp_path.iterdir()) == []


def launch(first: float, second: float) -> Launch:
    return Launch(
        turns=[Turn(0, 0, [first]), Turn(1, 0, [second])], warmup_ns=[[], []], steady_from=[0, 0],
        peak_memory_bytes=[None, None], tables=["", ""],
    )  # fmt: skip


def test_the_command_measures_by_the_plan_of_the_library():
    given = signature(cli_compare).parameters
    assert given["launches"].default == Plan().launches and given["time_limit"].default == Plan().time_limit


def test_when_measuring_stops():
    steady, wild = [launch(100, 101 + 0.01 * i) for i in range(18)], [launch(100, 100 + 9 * i) for i in range(18)]
    assert _stop(steady[:17], 2, Plan(), 1.0) == "" and _stop(steady, 2, Plan(), 1.0) == "18 launches, as planned"
    precise, slow = Plan(precision=0.01), Plan(precision=0.01, time_limit=600)
    assert "the precision of 1.00% was reached after 18 launches" in _stop(steady, 2, precise, 1.0)
    assert _stop(wild, 2, precise, 1.0) == ""
    assert "the time limit of 600 s ended it after 18 launches" in _stop(wild, 2, slow, 599.0)
