"""A person's mistakes: one sentence on stderr with the next step, the right exit code, nothing left behind."""

import json

import pytest


def mistake(result, code=2):
    """The one sentence of a mistake."""
    assert result.rc == code, result.stderr
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("perfkit: ")]
    assert len(lines) == 1, result.stderr
    assert result.stdout == ""
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["run", "gtp2"], ["gtp2", "gpt2"]),
        (["run", "gpt2", "--preset", "tinny"], ["tinny", "tiny"]),
        (["run", "gpt2", "--dtype", "fp12"], ["fp12", "fp32", "bf16"]),
        (["run", "gpt2", "--dtype", "tf32"], ["tf32", "CUDA GPU"]),
        (["run", "gpt2", "--backend", "thundr"], ["thundr", "thunder"]),
        (["run", "gpt2", "--backend", ","], ["No backend"]),
        (["run", "gpt2", "--device", "tpu"], ["tpu", "cpu"]),
        (["run", "gpt2", "--steps", "0"], ["--steps", "at least 1"]),
        (["run", "gpt2", "--sequence-length", "4096"], ["--sequence-length", "1024"]),
        (["run", "gpt2", "--stepps", "3"], ["--stepps"]),
        (["run", "./nothing.py"], ["nothing.py"]),
        (["report", "nowhere"], ["nowhere", "does not exist"]),
        (["report"], ["paths"]),
        (["list", "cheeses"], ["cheeses", "workloads"]),
        (["explain", "list-to-tensors"], ["list-to-tensors", "Did you mean list-to-tensor?"]),
        (["rum"], ["rum"]),
    ],
    ids=lambda value: "-".join(value[-2:]) if isinstance(value, list) else None,
)
def test_wrong_names_and_numbers(run_cli, tmp_path, arguments, parts):
    sentence = mistake(run_cli(arguments, cwd=tmp_path))
    for part in parts:
        assert part in sentence
    assert list(tmp_path.iterdir()) == []


def test_cuda_without_a_gpu(run_cli, tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    sentence = mistake(run_cli(["run", "gpt2", "--device", "cuda"], cwd=tmp_path))
    assert "--device cuda" in sentence and "CPU" in sentence


@pytest.mark.parametrize("option", ["--weights", "--data"])
def test_a_file_that_is_not_one(run_cli, tmp_path, option):
    picture = tmp_path / "picture.bin"
    picture.write_bytes(bytes(range(256)) * 8)
    result = run_cli(["run", "gpt2", "--preset", "tiny", option, picture, "--out", tmp_path / "run"], cwd=tmp_path)
    sentence = mistake(result)
    assert "picture.bin" in sentence
    assert sorted(p.name for p in tmp_path.iterdir()) == ["picture.bin"]
    assert picture.read_bytes() == bytes(range(256)) * 8


def test_no_compiler(run_cli, tmp_path):
    without = {"PATH": str(tmp_path), "CC": None, "PERFKIT_CACHE": str(tmp_path / "cache")}
    result = run_cli(["run", "gpt2", "--preset", "tiny", "--backend", "thunder-llmc"], cwd=tmp_path, env=without)
    sentence = mistake(result)
    assert "compiler" in sentence and "thunder-llmc" in sentence


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 1}', "\x00\xff"])
def test_a_damaged_manifest(run_cli, tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    sentence = mistake(run_cli(["report", tmp_path]))
    assert "run.json is damaged" in sentence
    assert (tmp_path / "run.json").read_text() == content
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_no_run(run_cli, tmp_path):
    assert "is not a run folder" in mistake(run_cli(["report", tmp_path]))
    assert "neither a run folder nor a profile" in mistake(run_cli(["tensorboard", tmp_path]))


def test_a_run_of_a_newer_version(run_cli, tmp_path):
    from perfkit.run_folder import Manifest, Settings, WorkloadFacts, write_manifest

    write_manifest(
        tmp_path,
        Manifest(
            perfkit="99.0",
            created="",
            command=[],
            settings=Settings(workload="w", preset="p", batch_size=1),
            workload=WorkloadFacts(title="w", parameters=1, samples_per_step=1),
        ),
    )
    raw = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**raw, "schema": 99}))
    assert "newer perfkit (99.0)" in mistake(run_cli(["report", tmp_path]))


def test_a_foreign_file(run_cli, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    assert "notes.txt" in mistake(run_cli(["report", tmp_path / "notes.txt"]))


def test_output_into_a_closed_pipe_is_no_error(tmp_path):
    import subprocess
    import sys
    from pathlib import Path

    root = Path(__file__).parents[2]
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m perfkit list --json | head -c 1; exit ${{PIPESTATUS[0]}}"],
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
