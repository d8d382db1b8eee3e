"""Measuring in turns: what a launch leaves behind, when it stops, and what a failure leaves."""

from __future__ import annotations

import dataclasses
import json
import statistics
from inspect import signature
from pathlib import Path

import pytest

from perfkit.cli.compare import compare as cli_compare
from perfkit.compare import launching, recording
from perfkit.compare.judge import compare
from perfkit.compare.launching import SideProgram
from perfkit.compare.record import MeasuredSide, Measurement, RecordedLaunch, Turn, read_measurement, write_measurement
from perfkit.compare.sides import ROUND
from perfkit.compare.sources import load, target_of
from perfkit.compare.stopping import StoppingRule, why
from perfkit.errors import RunFailed, UsageError
from perfkit.run_folder import TIMED_ALONE, Settings

SMALL = Path(__file__).parents[1] / "support" / "run" / "small.py"
QUICK = StoppingRule(launches=1, turn_seconds=1e-9, warmup_seconds=0.2, profiled_steps=2)  # a turn is one step


def program(label: str, **changes) -> SideProgram:
    given = {"workload": str(SMALL), "preset": "one", "batch_size": 32, "steps": 4, "warmup": 1, **changes}
    return SideProgram(label, Settings(**given), "eager")


def measure(folder: Path, plan: StoppingRule = QUICK, check: bool = False, overwrite: bool = False) -> None:
    sides = [(program("A"), "run", {}), (program("B"), "run", {})]
    recording.measure_into(folder, sides, plan, check, overwrite, lambda who, what: None)


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
    """Equals that keep turns of other lengths through all launches would be called different for that."""
    lengths = iter([3, 1, 1, 2])
    monkeypatch.setattr(launching, "_turn_steps", lambda warmup, plan: next(lengths))
    measure(tmp_path / "pair", StoppingRule(launches=2, rounds=1, profiled_steps=0))
    launches = read_measurement(tmp_path / "pair").launches
    taken = [{turn.side: len(turn.samples_ns) for turn in launch.turns} for launch in launches]
    assert taken == [{0: 3, 1: 1}, {0: 1, 1: 2}]


@pytest.mark.parametrize(
    ("peaks", "device", "together"),
    [((), "cpu", 1), ((2e9, None), "cpu", 1), ((2e9, 2e9), "cpu", 2), ((3e9, 2e9), "cpu", 1), ((1.0, 1.0), "cuda", 1)],
)
def test_two_launches_start_together_where_memory_is_known_to_hold_them(peaks, device, together, monkeypatch):
    monkeypatch.setattr("perfkit.run.memory.available_bytes", lambda: 9e9)
    assert launching._together([program("A", device=device), program("B", device=device)], peaks) == together


@pytest.mark.slow
def test_checked_sides_carry_their_correctness(tmp_path, monkeypatch):
    monkeypatch.setattr("perfkit.run.memory.available_bytes", lambda: 2_000_000_000)
    peaks, measured = [], recording.measure
    monkeypatch.setattr(recording, "measure", lambda *given: (peaks.extend(given[-1]), measured(*given))[1])
    measure(tmp_path / "pair", check=True)
    checked = json.loads((tmp_path / "pair" / "run" / "run.json").read_text())["backends"]
    assert peaks == [checked[0]["peak_memory_bytes"]] * 2 and all(peaks), "both sides are eager"
    assert [TIMED_ALONE in backend["warnings"] for backend in checked] == [True]
    sides = load(target_of(tmp_path / "pair"))
    assert all(side.backend.correctness.ok for side in sides)
    assert (tmp_path / "pair" / "run" / "run.json").is_file()
    assert compare(sides).pairs[0].waterfall.basis == "timed"
    (launch,) = read_measurement(tmp_path / "pair").launches
    for place, side in enumerate(sides):
        assert TIMED_ALONE not in side.backend.warnings, "the launches keep both in memory"
        timed = statistics.median(ns for turn in launch.turns if turn.side == place for ns in turn.samples_ns)
        uneven = any(
            "the timed steps are not compared" in warning for warning in side.backend.warnings
        )  # a busy machine
        own = side.backend.accounting.plain_step_ns
        assert own == (None if uneven else timed), "the checked run's own steps are another process's"


@pytest.mark.slow
def test_a_side_that_fails_ends_it_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("SMALL_RAISES", "1")
    with pytest.raises(RunFailed, match="ValueError: the second layer"):
        measure(tmp_path / "pair")
    assert list(tmp_path.iterdir()) == []


def launch(first: float, second: float) -> RecordedLaunch:
    return RecordedLaunch(
        turns=[Turn(0, 0, [first]), Turn(1, 0, [second])], warmup_ns=[[], []], steady_from=[0, 0],
        peak_memory_bytes=[None, None], tables=["", ""],
    )  # fmt: skip


def test_the_command_measures_by_the_plan_of_the_library():
    given = signature(cli_compare).parameters
    assert (
        given["launches"].default == StoppingRule().launches
        and given["time_limit"].default == StoppingRule().time_limit
    )


def test_a_clear_step_ends_the_launches_early():
    """Eight launches end it where the step is beyond 5 % for certain; their verdicts spend 40 % of the error, those of
    twelve 24 %."""
    apart, near = [[launch(100, by + 0.01 * i) for i in range(20)] for by in (120, 103)]
    odd = [*apart[:7], launch(100, 99)]
    assert why(apart[:8], 2, StoppingRule(), 1.0) == "every step's verdict stood after 8 launches"
    assert (
        why(apart[:7], 2, StoppingRule(), 1.0)
        == why(near[:8], 2, StoppingRule(), 1.0)
        == why(odd, 2, StoppingRule(), 1.0)
        == ""
    )
    assert why(apart[:12], 2, StoppingRule(), 1.0) == "every step's verdict stood after 12 launches"
    assert (
        why(apart[:8], 2, StoppingRule(precision=0.01), 1.0) == why(apart[:8], 2, StoppingRule(launches=12), 1.0) == ""
    )
    assert [StoppingRule().share(n) for n in (8, 12, 20)] == pytest.approx([0.4, 0.24, 0.36])
    assert StoppingRule(launches=12).share(12) == StoppingRule(precision=0.01).share(20) == 1.0
    assert [StoppingRule().until_look(n) for n in (0, 7, 8, 12, 20)] == [8, 1, 4, 8, 1]
    assert [StoppingRule().for_sides(sides).early for sides in (1, 2, 3, 4, 5, 6)] == [8, 8, 9, 10, 10, 11]
    assert StoppingRule(early=0).for_sides(4).early == 0 and StoppingRule().for_sides(6).looks() == []


@pytest.mark.parametrize("sides", [3, 4, 5])
def test_several_sides_look_as_soon_as_a_look_can_show_something(sides):
    """Holm's correction multiplies the least p by the number of pairs: more launches make it smaller first."""
    made = [
        RecordedLaunch(
            turns=[Turn(side, side, [100.0 * (1 + side) + 0.01 * i]) for side in range(sides)],
            warmup_ns=[[]] * sides, steady_from=[0] * sides, peak_memory_bytes=[None] * sides, tables=[""] * sides,
        )
        for i in range(20)
    ]  # fmt: skip
    plan = StoppingRule().for_sides(sides)
    assert why(made[: plan.early], sides, plan, 1.0) == f"every step's verdict stood after {plan.early} launches"
    sooner = dataclasses.replace(plan, early=plan.early - 1)
    assert why(made[: sooner.early], sides, sooner, 1.0) == "", "one launch fewer can show nothing"


def test_the_share_of_the_error_comes_to_every_verdict(tmp_path):
    """All eight launches are slower by a half: p is 1/128, over the share of this look."""
    sides = [MeasuredSide(label=label, run="", backend="eager") for label in ("A", "B")]
    record = {"perfkit": "0", "created": "", "command": [], "sides": sides}
    launches = [launch(100 + 0.01 * i, 150 + 0.02 * i) for i in range(8)]
    for share, low in ((1.0, "better or worse"), (0.4, "better or worse"), (0.2, "cannot tell")):
        write_measurement(tmp_path, Measurement(**record, launches=launches, share=share))
        step = compare(load(target_of(tmp_path))).pairs[0].step.judgement
        assert step.p == pytest.approx(1 / 128 / share) and step.share == share
        assert (step.verdict == "worse") == (low != "cannot tell")


def test_when_measuring_stops():
    steady, wild = [launch(100, 101 + 0.01 * i) for i in range(20)], [launch(100, 100 + 9 * i) for i in range(20)]
    assert (
        why(steady[:19], 2, StoppingRule(), 1.0) == ""
        and why(steady, 2, StoppingRule(), 1.0) == "20 launches, as planned"
    )
    precise, slow = StoppingRule(precision=0.01), StoppingRule(precision=0.01, time_limit=600)
    assert "the precision of 1.00% was reached after 20 launches" in why(steady, 2, precise, 1.0)
    assert why(wild, 2, precise, 1.0) == ""
    assert "the time limit of 600 s ended it after 20 launches" in why(wild, 2, slow, 599.0)
