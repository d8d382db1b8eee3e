"""`perfkit sweep`: whole runs in folders of their own, none repeated; and what it will not do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfkit.cli import main
from perfkit.run.sweep import combinations, folder_name

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--batch-size", "4", "--dim", "width=8", "--steps", "2", "--warmup", "0", "--profiler", "none"]


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code or 0


def test_combinations_and_their_folders():
    cells = combinations({"batch_size": ["1", "2"], "width": ["8", "16"]})
    assert [folder_name(c) for c in cells] == [
        "batch_size=1,width=8", "batch_size=1,width=16", "batch_size=2,width=8", "batch_size=2,width=16",
    ]  # fmt: skip
    assert combinations({}) == [{}] and folder_name({}) == "all"


def killed_during(command: list[str], folder: Path) -> None:
    """Run `perfkit COMMAND` in a process of its own, and kill it (SIGKILL) while it makes the run in `folder`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", "perfkit", *command],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        unfinished = folder.with_name(f".{folder.name}.partial")
        until = time.monotonic() + 240
        while not unfinished.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        assert process.poll() is None and unfinished.exists()
        os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_was(tmp_path, capfd):
    out = tmp_path / "sweep"
    command = ["sweep", "mlp", "--dim", "layers=1,2", *SMALL, "--out", str(out)]
    killed_during(command, out / "layers=2")
    assert (out / "layers=1" / "run.json").is_file() and not (out / "layers=2").exists()
    assert not (out / "sweep.html").exists()
    kept = (out / "layers=1" / "run.json").stat().st_mtime_ns
    assert code_of(*command) == 0
    assert "1 of 2 runs were there already" in capfd.readouterr().out
    assert (out / "layers=1" / "run.json").stat().st_mtime_ns == kept
    found = json.loads((out / "sweep.json").read_text())
    assert [p["values"] for p in found["points"]] == [{"layers": "1"}, {"layers": "2"}]
    assert sorted(p.name for p in out.iterdir()) == ["layers=1", "layers=2", "sweep.html", "sweep.json", "sweep.md"]
    # Other settings in the same folders are refused before anything runs.
    assert code_of(*command[:-2], "--seed", "7", "--out", str(out)) == 2
    assert "has other settings" in capfd.readouterr().err
    assert code_of(*command[:-2], "--backend", "eager,compile", "--out", str(out)) == 2
    assert "lacks the backend compile" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mlp", "--batch-size", "4,x"], "'x' is not a whole number"),
        (["mlp", "--dim", "width"], "is not of the form NAME=VALUES"),
        (["mlp", "--dim", "depth=1,2"], "no dimension of mlp called 'depth'"),
        (["mlp", "--profiler", "ncu"], "is not for a sweep"),
        (["nothing", "--batch-size", "4"], "no workload called 'nothing'"),
    ],
)
def test_mistakes_are_sentences(arguments, said, tmp_path, capfd):
    assert code_of("sweep", *arguments, "--out", str(tmp_path / "out")) == 2
    assert said in capfd.readouterr().err
    assert not (tmp_path / "out").exists()
