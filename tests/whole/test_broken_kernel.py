"""A kernel broken on purpose: its backend is wrong, gets no speed-up, and the command fails."""

import json
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(run_cli, tmp_path_factory):
    """A run of the tiny GPT-2 with a GELU that is one part in a hundred too large."""
    folder = tmp_path_factory.mktemp("broken")
    shutil.copytree(ROOT / "kernels" / "gelu", folder / "kernels" / "gelu")
    source = folder / "kernels" / "gelu" / "gelu.c"
    broken = source.read_text().replace("lanes, v_gelu(", "lanes, 1.01f * v_gelu(")
    assert broken != source.read_text()
    source.write_text(broken)
    arguments = ["run", "gpt2", "--preset", "tiny", "--dim", "layers=1", "--steps", "3"]
    arguments += ["--backend", "eager,thunder-llmc"]
    result = run_cli([*arguments, "--kernels", folder / "kernels", "--out", folder / "run"], cwd=folder)
    return result, folder / "run"


@pytest.mark.slow
def test_the_command_fails_and_says_which_results_are_wrong(run):
    result, _ = run
    assert result.rc == 1, result.stderr
    assert "Traceback" not in result.stderr
    row = next(line for line in result.stdout.splitlines() if line.startswith("thunder-llmc"))
    assert "wrong" in row
    assert not re.search(r"\d×", row), row
    assert "thunder-llmc is WRONG" in result.stdout


@pytest.mark.slow
def test_every_format_calls_it_wrong_and_none_shows_a_speed_up(run):
    _, folder = run
    report = json.loads((folder / "report.json").read_text())
    backends = {b["name"]: b for b in report["backends"]}
    assert backends["thunder-llmc"]["status"] == "wrong"
    assert backends["thunder-llmc"]["speedup"] is None
    assert backends["eager"]["status"] == "ok"
    failed = [c["name"] for c in backends["thunder-llmc"]["correctness"]["checks"] if not c["ok"]]
    assert "gradient of transformer.h.0.mlp.c_fc.weight" in failed
    assert "thunder-llmc is WRONG" in (folder / "report.md").read_text()
    assert "thunder-llmc is WRONG" in report["verdict"][0]
