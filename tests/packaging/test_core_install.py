"""The wheel without extras, in an environment of its own: reports in all formats, and no torch."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest

from perfkit.run.session import Session
from perfkit.run_folder import Settings

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.full]


@pytest.fixture(scope="module")
def command(tmp_path_factory, distributions):
    """`command(ARGS)` runs the installed `perfkit` away from the checkout."""
    folder = tmp_path_factory.mktemp("core")
    venv.create(folder / "env", with_pip=True)
    pip = [folder / "env" / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
    # With the checkout on PYTHONPATH pip would find perfkit installed already.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    wanted = [distributions[1], "-c", ROOT / "constraints.txt"]
    done = subprocess.run([*pip, *wanted], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        program = folder / "env" / "bin" / "perfkit"
        return subprocess.run(
            [program, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A real run of a small workload, made by this environment, which has torch."""
    folder = tmp_path_factory.mktemp("made") / "run"
    workload = ROOT / "tests" / "support" / "run" / "small.py"
    Session(Settings(workload=str(workload), preset="one", batch_size=32, steps=5), {"eager": "eager"}, folder).run()
    return folder


def test_a_report_in_every_format_without_torch(command, run_folder, tmp_path):
    done = command("report", run_folder, "--out", tmp_path / "out", "--format", "all,parquet,kernels-csv")
    assert done.returncode == 0, done.stderr
    assert "✓ correct" in done.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {f"report.{ending}" for ending in ("html", "md", "txt", "json", "csv")} <= names
    assert {"report.kernels.eager.parquet", "report.kernels.eager.csv"} <= names
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["backends"][0]["efficiency"] > 0
    assert "function drawChart(" in (tmp_path / "out" / "report.html").read_text()


def test_torch_is_not_there_and_is_asked_for_only_where_it_is_needed(command, tmp_path):
    assert command("--help").returncode == 0
    assert "torch" in command("doctor").stdout
    assert command("list").returncode == 0
    refused = command("run", "gpt2")
    assert refused.returncode == 2
    assert "PyTorch is not installed" in refused.stderr and "perfkit[run]" in refused.stderr
    assert "Traceback" not in refused.stderr
