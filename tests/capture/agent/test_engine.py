"""An inference engine under capture: its iterations are the steps, as its own log has them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from perfkit.analysis.report.serving import serving
from perfkit.analysis.step_results import ServingPhase
from perfkit.capture.agent.order import Order
from perfkit.capture.agent.steps.ends import CALL, ITERATION, REPLAY, WORDS, StepFinder
from tests.support.programs.captured import HERE, alone, capture

WARMUP, STEPS = 4, 24


def recorded(tmp_path: Path, *arguments: str) -> tuple[list[ServingPhase], list[dict[str, Any]], Any]:
    """The phases of the recorded steps, the lines of the engine's log about them, and the table."""
    words = [sys.executable, str(HERE / "engine.py"), *arguments]
    found = capture([*words, "log", str(tmp_path / "log")], tmp_path, Order(warmup=WARMUP, steps=STEPS))
    assert (found.code, found.stdout) == (0, alone(words).stdout)
    (one,) = found.recorded
    assert one[1].steps_are == WORDS[ITERATION] and len(one[1].step_ns) == STEPS
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert len(log) > WARMUP + STEPS  # the engine serves on
    table = found.table()
    return serving(table.facts, table.frame), log[WARMUP : WARMUP + STEPS], table


@pytest.mark.parametrize("arguments", [(), ("served", "forked"), pytest.param(("served",), marks=pytest.mark.full)])
def test_phases_tokens_and_bytes_are_those_of_the_engines_log(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    phases, log, table = recorded(tmp_path, *arguments)
    assert table.facts["step_names"] == [line["name"] for line in log]
    assert [phase.name for phase in phases] == [
        p for p in ("prefill", "mixed", "decode") if p in {e["phase"] for e in log}
    ]
    for phase in phases:
        mine = [line for line in log if line["phase"] == phase.name]
        assert phase.iterations == len(mine)
        assert phase.prompt_tokens == sum(line["prompt_tokens"] for line in mine)
        assert phase.new_tokens == sum(line["new_tokens"] for line in mine)
        assert phase.weight_bytes == pytest.approx(sum(line["weights"] for line in mine) / len(mine))
        assert phase.cache_bytes == pytest.approx(sum(line["cache"] for line in mine) / len(mine))
    assert set(table.frame["pass"].dropna()) == {phase.name for phase in phases}
    assert {"blocks.0.attention.qkv", "head"} <= set(table.frame["module"].dropna())


def test_the_mark_of_an_iteration_outranks_calls_and_replays() -> None:
    finder = StepFinder()
    signals = [(ITERATION, "exec"), (CALL, "model"), *[(ITERATION, "exec"), (REPLAY, "graph")] * 6]
    found = [i for i, (kind, key) in enumerate(signals) if finder.signal(kind, key)]
    assert found == list(range(0, len(signals), 2)) and finder.kind == ITERATION
