"""`perfkit compare` and `perfkit baseline` as commands: exit codes, what is refused, and what an error says."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from perfkit.cli import _run
from perfkit.compare.record import MeasuredSide, Measurement, RecordedLaunch, Turn, write_measurement
from perfkit.run_folder import Manifest, write_manifest
from tests.support.analysis.examples import backend, ceilings, run
from tests.support.compare.sample import steps_table


def folder(
    path: Path, millis: float, factor: float = 1.0, *, spread: float = 0.002, name: str = "eager", **changes
) -> Path:
    """A run folder of one backend with ten steps in five turns, and twelve profiled ones."""
    ok = changes.pop("ok", True)
    record = backend(name, millis, spread=spread, ok=ok, peak_memory_bytes=changes.pop("memory", 1e8))
    record.turns = [2] * 5
    manifest: Manifest = run(record).manifest
    manifest.settings = msgspec.structs.replace(manifest.settings, **changes.pop("settings", {}))
    manifest.environment = {"versions": {"torch": changes.pop("torch", "2.13.0")}, "cpu": {"model": "toy"}}
    (path / name).mkdir(parents=True)
    steps_table(factor).write(path / name / "kernels.parquet")
    (path / "ceilings.json").write_bytes(msgspec.json.encode(ceilings()))
    write_manifest(path, manifest)
    return path


@pytest.fixture
def runs(tmp_path):
    folder(tmp_path / "base", 100)
    folder(tmp_path / "slow", 130, 1.3)
    folder(tmp_path / "same", 100.1)
    return tmp_path


@dataclass(frozen=True)
class Done:
    rc: int
    stdout: str
    stderr: str


@pytest.fixture
def cli(runs, monkeypatch, capsys):
    """Commands in this process: what is tested is what they say, and a process for each would take minutes."""
    monkeypatch.chdir(runs)
    monkeypatch.delenv("PERFKIT_BASELINES", raising=False)

    def run_(*arguments):
        monkeypatch.setattr("sys.argv", ["perfkit", *map(str, arguments)])
        capsys.readouterr()
        rc = _run([str(a) for a in arguments])
        printed = capsys.readouterr()
        return Done(rc, printed.out, printed.err)

    return run_


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["base", "slow"], 0),
        (["base", "slow", "--fail-on", "step>+3%"], 1),
        (["base", "slow", "--fail-on", "step>+60%"], 0),
        (["base", "slow", "--fail-on", "step>+30%"], 3),
        (["base", "slow", "--fail-on", "step>+30%", "--on-cannot-tell", "pass"], 0),
        (["base", "slow", "--fail-on", "step>+30%", "--on-cannot-tell", "fail"], 1),
        (["base", "slow", "--fail-on", "family:matmul>+5%"], 1),
        (["base", "slow", "--fail-on", "family:elementwise>+10%,memory>+10%"], 0),
        (["base", "slow", "--fail-on", "pass:backward>+10%", "--fail-on", "efficiency<-10%"], 0),
        (["slow", "base", "--fail-on", "step>+3%"], 0),
        (["base", "same", "--fail-on", "step>+3%", "--allow", "0%"], 0),
        (["base", "same", "--fail-on", "step>+3%"], 3),
    ],
)
def test_exit_codes_of_the_gate(cli, arguments, code):
    done = cli("compare", *arguments)
    assert done.rc == code, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"settings": {"device": "cuda"}}, "device: cpu and cuda"),
        ({"torch": "2.7.1"}, "torch: 2.13.0 and 2.7.1"),
        ({"settings": {"batch_size": 64}}, "batch size: 2 and 64"),
        ({"settings": {"dimensions": {"layers": 4}}}, "dimensions: none and layers=4"),
    ],
)
def test_what_was_measured_differently_is_refused_unless_asked(cli, runs, changes, said):
    folder(runs / "other", 100, **changes)
    done = cli("compare", "base", "other", "--fail-on", "step>+3%")
    assert done.rc == 2 and said in done.stderr and "--anyway" in done.stderr
    done = cli("compare", "base", "other", "--anyway", "--json")
    assert done.rc == 0 and any(said in line for line in json.loads(done.stdout)["differs"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["base", "nowhere"], "nowhere is not a run folder, profile or saved baseline"),
        ([], "Nothing to compare was named"),
        (["base", "slow", "--fail-on", "speed>+3%"], "has no metric 'speed'"),
        (["base", "slow", "--fail-on", "step>3"], "is not METRIC>+PERCENT%"),
        (["base", "slow", "--fail-on", "step<-3%"], "step is worse when it grows"),
        (["base", "slow", "--fail-on", "efficiency>+3%"], "efficiency is worse when it falls"),
        (["base", "slow", "--fail-on", "family:softmax>+3%"], "no side has a family 'softmax'. There are: elementwise"),
        (["base", "slow", "--on-cannot-tell", "9"], "not one of 3, pass, fail"),
        (["base", "slow", "--resolution", "much"], "--resolution much is not a share"),
        (["base:fast", "slow"], "has no backend fast"),
        (["base", "--fail-on", "step>+3%"], "needs two sides"),
        (["mlp", "--backend", "eager", "--fail-on", "step>+3%"], "needs two sides"),
        (["base", "mlp"], "base was measured before, and mlp would be now"),
        (["mlp", "--backend", "eager", "--launches", "0"], "--launches must be at least 1"),
        (["mlp", "--backend", "eager", "--out", "base"], "is not a measured comparison"),
    ],
)
def test_a_mistake_is_a_sentence(cli, arguments, said):
    done = cli("compare", *arguments)
    assert done.rc == 2 and said in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_wrong_side_fails_the_comparison(cli, runs):
    folder(runs / "wrong", 50, ok=False)
    done = cli("compare", "base", "wrong")
    assert done.rc == 1 and "is wrong: logits differ" in done.stdout
    assert cli("baseline", "save", "bad", "wrong").rc == 1


def test_files_and_formats(cli, runs):
    done = cli("compare", "base", "slow", "--out", "compared")
    assert sorted(p.name for p in (runs / "compared").iterdir()) == [
        "comparison.html", "comparison.json", "comparison.md", "comparison.txt",
    ]  # fmt: skip
    assert "slow against base: worse" in done.stdout
    assert cli("compare", "base", "slow", "--markdown").stdout.startswith("# slow against base")
    found = json.loads(cli("compare", "base", "slow", "--json").stdout)
    assert found["pairs"][0]["step"]["judgement"]["verdict"] == "worse" and found["command"][:2] == [
        "perfkit",
        "compare",
    ]


def test_a_baseline_outlives_the_run_it_was_saved_from(cli, runs):
    assert cli("baseline", "list").stdout.startswith("No baselines in")
    assert cli("baseline", "save", "main", "base").rc == 0
    shutil.rmtree(runs / "base")
    assert cli("compare", "main", "slow", "--fail-on", "step>+3%").rc == 1
    assert cli("compare", "main:eager", "same").rc == 0
    listed = cli("baseline", "list").stdout
    assert "main" in listed and "eager" in listed
    assert cli("baseline", "rm", "main").rc == 0
    gone = cli("compare", "main", "slow")
    assert gone.rc == 2 and "main is not a run folder" in gone.stderr
    assert not list((runs / ".perfkit" / "baselines").iterdir())


def test_profiles_are_saved_as_tables_and_the_folder_may_be_elsewhere(cli, runs, monkeypatch):
    monkeypatch.setenv("PERFKIT_BASELINES", str(runs / "kept"))
    assert cli("baseline", "save", "table", "base/eager/kernels.parquet").rc == 0
    done = cli("compare", "table", "slow/eager/kernels.parquet")
    assert done.rc == 0 and "was not timed" in done.stdout
    assert not (runs / ".perfkit").exists()


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "a b", "x" * 90])
def test_a_name_that_is_a_path_is_refused(cli, name):
    done = cli("baseline", "save", name, "base")
    assert done.rc == 2 and "cannot be the name of a baseline" in done.stderr


def test_a_history_marks_its_steps(cli, runs):
    for number in range(12):
        path = folder(runs / f"run{number}", 100 + 0.1 * number + (10 if number >= 6 else 0))
        assert cli("baseline", "save", "main", path).rc == 0
    done = cli("baseline", "history", "main", "--out", "history")
    assert done.rc == 0 and "main: step changed by +10." in done.stdout
    assert (runs / "history" / "history.html").is_file()
    lines = json.loads(cli("baseline", "history", "main", "--metric", "family:matmul", "--json").stdout)
    assert len(lines[0]["values"]) == 12 and lines[0]["steps"] == []
    wrong = cli("baseline", "history", "main", "--metric", "speed")
    assert wrong.rc == 2 and "No record has a metric 'speed'. They have: step, memory" in wrong.stderr
    assert cli("baseline", "history", "other").rc == 2


def test_a_damaged_record_is_a_sentence(cli, runs):
    cli("baseline", "save", "main", "base")
    record = next((runs / ".perfkit" / "baselines" / "main").iterdir()) / "baseline.json"
    record.write_text('{"name": 3')
    done = cli("compare", "main", "slow")
    assert done.rc == 2 and "is damaged" in done.stderr and "Traceback" not in done.stderr


def measured(path: Path, **changes) -> Path:
    """A measured comparison of two sides without profiles, eight launches, the second side 10 % slower."""
    given = {
        "warmup_ns": [[], []],
        "steady_from": [0, 0],
        "peak_memory_bytes": [1e8, 1e8],
        "tables": ["", ""],
    } | changes
    launches = [
        RecordedLaunch(turns=[Turn(s, 0, [1e6 * (1 + 0.1 * s) * (1 + 0.001 * i)]) for s in (0, 1)], **given)
        for i in range(8)
    ]
    sides = [MeasuredSide(label=label, run="", backend="eager") for label in ("before", "after")]
    path.mkdir()
    write_measurement(path, Measurement(perfkit="0", created="", command=["perfkit"], sides=sides, launches=launches))
    return path


def test_a_measured_comparison_is_read_again_gated_and_kept(cli, runs):
    measured(runs / "pair")
    done = cli("compare", "pair", "--fail-on", "step>+3%")
    assert done.rc == 1 and "after against before: worse. The step takes +10.0%" in done.stdout
    assert "8 launches of fresh processes" in done.stdout
    assert cli("baseline", "save", "kept", "pair").rc == 0
    apart = cli("compare", "kept:before", "pair:after", "--fail-on", "step>+3%")
    assert apart.rc == 1 and "measured at different times: intervals allow 5%" in apart.stdout


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tables": [""]}, "a launch lacks a side"),
        ({"steady_from": []}, "a launch lacks a side"),
        ({"tables": ["../../etc/kernels.parquet", ""]}, "lies outside it"),
        ({"tables": ["launches/none.parquet", ""]}, "launches/none.parquet"),
    ],
)
def test_a_damaged_measurement_is_a_sentence(cli, runs, changes, said):
    measured(runs / "pair", **changes)
    done = cli("compare", "pair")
    assert done.rc == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1
