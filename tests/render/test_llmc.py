"""`perfkit report --style llmc`: its text, and what the command refuses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit.analysis.llmc_style import LlmcStyle, summarize
from perfkit.render.pages import llmc
from tests.analysis.test_llmc_style import STEP, step
from tests.support.render.sample import HOSTILE

Cli = Callable[..., Any]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "profile.parquet"
    step().write(path)
    return path


def test_text(golden: Callable[[str, str], None]) -> None:
    golden("render/llmc.txt", llmc.render(summarize(step())))


def test_digits() -> None:
    text = llmc.render(summarize(step()))
    (call,) = (line for line in text.splitlines() if line.lstrip().startswith("10 "))
    # 12 × 2 ms; 0.8 GB in 2 ms; 20 %; 12 × 0.4 GB; 12 × 2 GiB; 12 × 5 M
    assert call.split()[1:] == [
        "bwd×12", "cudnn_generated_fort_native_sdpa", "24.00", "400.0", "20.0", "4.80", "4.80", "24.00", "24.00",
        "60.00",
    ]  # fmt: skip
    assert "takes 106.0 ms" in text
    assert "Overall efficiency: 69.9%" in text


def test_layers_and_names_of_passes() -> None:
    settings = LlmcStyle(layers=48, names=(("fwd", "forward"), ("init", "copies")))
    text = llmc.render(summarize(step(), settings), settings)
    assert "forward×48" in text and "copies×0" in text and "cls×1" in text
    assert "of 48 layers" in text and "  forward " in text


def test_names_are_harmless_and_only_the_type_table_crops_at_40() -> None:
    hostile, long = HOSTILE.replace(" ", ""), "k" * 41
    rows = [*STEP[:2], (long, *STEP[2][1:]), (hostile, *STEP[3][1:]), ("x" * 10_000, *STEP[4][1:]), *STEP[5:]]
    text = llmc.render(summarize(step(rows)))
    assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text
    assert max(map(len, text.splitlines())) < 300
    calls, kinds = text.split("Kernel types")
    assert f" {long} " in calls and long not in kinds and f"{'k' * 37}... " in kinds


def test_the_command(run_cli: Cli, report: Path, tmp_path: Path) -> None:
    done = run_cli(
        ["report", report, "--style", "llmc", "--layers", "24", "--pass-names", "cls=head", "--out", tmp_path]
    )
    assert done.rc == 0, done.stderr
    assert "head×1" in done.stdout and "fwd×24" in done.stdout
    assert (tmp_path / "report.llmc.txt").read_text() == done.stdout
    as_json = run_cli(["report", report, "--style", "llmc", "--json"])
    assert json.loads(as_json.stdout)["time_ns"] == pytest.approx(106e6)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--style", "llm"], "llm is not a style"),
        (["--layers", "3"], "Add --style llmc"),
        (["--style", "llmc", "--layers", "0"], "--layers must be at least 1"),
        (["--style", "llmc", "--pass-names", "a"], "names no pass"),
    ],
)
def test_mistakes(run_cli: Cli, report: Path, options: list[str], part: str) -> None:
    done = run_cli(["report", report, *options])
    assert done.rc == 2 and part in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_missing_counters_are_one_sentence(run_cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "basic.parquet"
    step(instructions=[math.nan] * len(STEP)).write(path)
    done = run_cli(["report", path, "--style", "llmc"])
    assert done.rc == 2 and "lacks instructions" in done.stderr and "ncu --set full" in done.stderr
    assert done.stdout == ""
