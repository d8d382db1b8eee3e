"""Progress on stderr while a command works: a line a stage in a pipe, a live line on a terminal."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit.cli.parts import program, shown
from perfkit.compare import recording
from perfkit.compare.launching import SideProgram
from perfkit.compare.stopping import StoppingRule
from perfkit.run.session import Session
from perfkit.run_folder import Settings

Cli = Callable[..., Any]
SMALL = str(Path(__file__).parents[1] / "support" / "run" / "small.py")
LINE = re.compile(r"^\[ *\d+ s\] (.+)$", re.MULTILINE)


def stages(stderr: str) -> list[str]:
    return LINE.findall(stderr)


def test_in_a_pipe_each_stage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with shown.progress() as say:
        for turn in range(1, 4):
            for who in ("eager", "llmc"):
                say(who, f"timing · round {turn} of 3")
        say("eager", "profiling")
        say("eager", "profiling")
    assert stages(capsys.readouterr().err) == ["eager: timing", "llmc: timing", "eager: profiling"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


KERNELS = [f"profiling under ncu · kernel {number} of about 2, gemm: 50%" for number in (1, 2)]


def test_a_capture_in_a_pipe_says_a_line_a_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with program.said() as say:
        for what in ("reading the trace", *KERNELS, "reading the report"):
            say("program", what)
    assert capsys.readouterr().err.splitlines() == [
        "perfkit: program: reading the trace", "perfkit: program: profiling under ncu",
        "perfkit: program: reading the report",
    ]  # fmt: skip


def test_a_capture_on_a_terminal_draws_how_far_it_is_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with program.said() as say:
        for what in ("reading the trace", *KERNELS, "reading the report", *KERNELS[:1]):
            say("program", what)
    drawn = [f"\r\033[Kperfkit: program: {what}" for what in KERNELS]
    assert terminal.getvalue() == (
        f"perfkit: program: reading the trace\n{''.join(drawn)}\nperfkit: program: reading the report\n{drawn[0]}\n"
    )


def test_on_a_terminal_one_line_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    for variable in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with shown.progress() as say:
        say("eager", "timing · round 2 of 3")
    written = terminal.getvalue()
    assert "round 2 of 3" in written and "\x1b[" in written
    assert not stages(written)


@pytest.mark.slow
def test_a_run_in_a_pipe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = Settings(workload=SMALL, preset="one", batch_size=32, steps=12, warmup=1, profiler="none")
    with shown.progress() as say:
        Session(settings, {"eager": "eager", "again": "eager"}, tmp_path / "run", progress=say).run()
    said = [stage for stage in stages(capsys.readouterr().err) if not stage.startswith("ceilings")]
    each = ["building the model", "correctness", "warming up", "timing"]
    assert sorted(said) == sorted(
        [
            "reference: building the model",
            "reference: first steps",
            *(f"{n}: {s}" for n in ("eager", "again") for s in each),
        ]
    )


@pytest.mark.slow
def test_a_launch_of_a_comparison_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = Settings(workload=SMALL, preset="one", batch_size=32)
    sides: recording.Sides = [
        (SideProgram(label=label, settings=settings, backend="eager"), "", {}) for label in ("A", "B")
    ]
    plan = StoppingRule(launches=2, rounds=1, profiled_steps=0, turn_seconds=0.01, warmup_seconds=0.1)
    with shown.progress() as say:
        recording.measure_into(tmp_path / "pair", sides, plan, check=False, overwrite=False, progress=say)
    assert stages(capsys.readouterr().err) == ["launch 1: measuring", "launch 2: measuring"]


def test_writing_data_is_one_line(run_cli: Cli, tmp_path: Path) -> None:
    done = run_cli(["data", "criteo", "--rows", "300000", "--out", tmp_path / "clicks.parquet"])
    assert done.rc == 0, done.stderr
    assert stages(done.stderr) == ["criteo: writing"]
