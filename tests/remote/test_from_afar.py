"""`--on`: runs and captures on another machine, an sshd of our own on the loopback; and what can happen to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from perfkit.run_folder import read_manifest
from tests.support import forks
from tests.support.interrupts import hear_interrupts

ROOT = Path(__file__).resolve().parents[2]

TRAINS = """
import sys
import torch
from parts.model import Net

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
print(sys.argv[1:])
print(sys.stdin.read(), end="")
print("to the other stream", file=sys.stderr)
"""
MODEL = """
import torch

class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
"""
WAITS = """
import os, time
print("ready", os.getpid(), flush=True)
time.sleep(100)
"""
ODD = ["two words", "it's", '"$HOME"', "a\nline", "*", "--on", ""]


def perfkit(machine, folder: Path, *arguments: object, **more) -> subprocess.Popen[str]:
    """A perfkit here, in `folder`, that hears Ctrl-C."""
    env = {**os.environ, **machine.env, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "perfkit", *map(str, arguments)], cwd=folder, env=env, text=True,
        stdin=more.get("stdin", subprocess.DEVNULL), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, preexec_fn=hear_interrupts,
    )  # fmt: skip


def ended(process: subprocess.Popen[str], given: str | None = None) -> tuple[int, str, str]:
    """Exit code, output and errors, the latter on one line."""
    out, err = process.communicate(given, timeout=240)
    return process.returncode, out, " ".join(err.split())


def ready(process: subprocess.Popen[str]) -> int:
    """Wait until the program there says that it is; its process."""
    assert process.stdout is not None
    word, number = process.stdout.readline().split()
    assert word == "ready"
    return int(number)


def gone(process: int) -> bool:
    """Return whether a process ends within seconds."""
    for _ in range(200):
        if not Path(f"/proc/{process}").exists():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def folder(tmp_path):
    """A program in a checkout, with a part that git does not know yet and data that it ignores."""
    place = tmp_path / "my program"
    (place / "parts").mkdir(parents=True)
    (place / "data").mkdir()
    (place / "train.py").write_text(TRAINS)
    (place / "waits.py").write_text(WAITS)
    (place / ".gitignore").write_text("data/\n")
    (place / "data" / "large.bin").write_text("data")
    subprocess.run(["git", "init", "-q"], cwd=place, check=True)
    subprocess.run(["git", "add", "."], cwd=place, check=True)
    (place / "parts" / "model.py").write_text(MODEL)
    return place


@pytest.mark.slow
def test_a_capture_comes_back(machine, folder):
    """With the program's input, arguments, output and exit code, and its files; and what git ignores stays here."""
    (folder / "train.py").write_text(f"{TRAINS}\nsys.exit(7)\n")
    order = ["capture", "--on", machine.name, "--warmup", 2, "--steps", 2, "--out", "runs/a"]
    process = perfkit(machine, folder, *order, "--", "python", "train.py", *ODD, stdin=subprocess.PIPE)
    code, out, err = ended(process, "some\ninput\n")
    assert (code, out) == (7, f"{ODD}\nsome\ninput\n"), err
    assert "to the other stream" in err and "sending 4 of 4 files" in err and "installing" not in err
    assert "Report: runs/a/report.html" in err
    manifest = read_manifest(folder / "runs/a")
    assert manifest.command[:4] == ["perfkit", "capture", "--on", machine.name]
    assert manifest.workload.program.startswith("python train.py")
    assert (folder / "runs/a/program/kernels.parquet").is_file() and (folder / "runs/a/report.html").is_file()
    (work,) = (path.parent for path in (machine.place / "work").glob("*/*/train.py") if "my program" in str(path))
    assert sorted(path.name for path in work.iterdir() if path.name != "parts") == [
        ".gitignore",
        "train.py",
        "waits.py",
    ]
    assert [path.name for path in (folder / "runs").iterdir()] == ["a"]


@pytest.mark.slow
def test_a_run_comes_back(machine, folder):
    """Also with a workload of one's own: its file goes there."""
    (folder / "parts" / "mine.py").write_text((ROOT / "tests/support/run/small.py").read_text())
    order = ["run", folder / "parts/mine.py", "--steps", 2, "--profiler", "none", "--json"]
    code, out, err = ended(perfkit(machine, folder, *order, "--on", machine.name, "--out", "runs/b"))
    assert code == 0, err
    report = json.loads(out)
    assert [backend["status"] for backend in report["backends"]] == ["ok"]
    assert "eager: timing" in err and "report: analysing" in err
    assert read_manifest(folder / "runs/b").settings.workload.endswith("mine.py")
    assert machine.left() == []


@pytest.mark.slow
def test_a_connection_that_ends_and_can_be_made_again(machine, folder):
    """The program ends there, and what it recorded until then is brought here."""
    (folder / "train.py").write_text(TRAINS.split("print(sys.argv")[0] + WAITS)
    order = ["capture", "--on", machine.name, "--warmup", 2, "--steps", 2, "--out", "runs/c"]
    process = perfkit(machine, folder, *order, "--", "python", "train.py")
    program = ready(process)
    machine.hang_up()
    code, _, err = ended(process)
    assert code == 1, err
    assert f"The connection to {machine.name} ended while the program ran; what was recorded until then is here" in err
    assert gone(program)
    assert (folder / "runs/c/report.html").is_file()
    assert machine.left() == []


def test_ctrl_c_here_ends_the_program_there(machine, folder):
    process = perfkit(machine, folder, "capture", "--on", machine.name, "--", "python", "waits.py")
    program = ready(process)
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130 and "KeyboardInterrupt" in err and "Nothing was recorded" in err
    assert gone(program)
    assert not any((folder / "runs").iterdir())


def test_a_request_to_end_here_ends_the_program_there(machine, folder):
    process = perfkit(machine, folder, "capture", "--on", machine.name, "--", "python", "waits.py")
    program = ready(process)
    process.terminate()
    assert ended(process)[0] == 143
    assert gone(program)


def test_a_machine_that_goes_away_for_good(machine, folder):
    """The message names what may be left there; nothing here changed."""
    before = set(machine.left())
    process = perfkit(machine, folder, "capture", "--on", machine.name, "--out", "runs/d", "--", "python", "waits.py")
    program = ready(process)
    with machine.being("exit 255"):
        machine.hang_up()
        code, _, err = ended(process)
    (left,) = set(machine.left()) - before
    assert code == 1 and "Nothing here was changed" in err, err
    assert f"stays in {machine.name}:{machine.place}/runs/{left}. Run it again, or bring it: `scp -r" in err
    assert gone(program)
    assert not any((folder / "runs").iterdir())


def refused(machine, folder, mode: str, *more: object, host: str = "") -> tuple[int, str]:
    """Exit code and errors of a capture on a machine that is like `mode`; nothing may have changed here."""
    with machine.being(mode):
        words = ["capture", "--on", host or machine.name, *more, "--out", "runs/x", "--", "python", "waits.py"]
        env = {**os.environ, **machine.env, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        done = forks.run([sys.executable, "-m", "perfkit", *map(str, words)], cwd=folder, env=env)
    assert done.stdout == "" and not (folder / "runs" / "x").exists() and "Traceback" not in done.stderr
    return done.returncode, " ".join(done.stderr.split())


def test_a_machine_that_cannot_be_reached(machine, folder):
    code, err = refused(machine, folder, "", host=f"{machine.name}-off")
    assert code == 2 and err.startswith(f"perfkit: {machine.name}-off cannot be reached: ssh: connect to host")
    assert err.endswith(f"Connection refused. Try `ssh {machine.name}-off` by itself.")
    code, err = refused(machine, folder, "", host="-oProxyCommand=x")
    assert code == 2 and "is not a host" in err


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("", "`ssh {}` finds no Python on {}. Install one there, or name one by --remote-python."),
        ("echo 3.9 1", "Python 3.9 on {} ({}) is too old: perfkit runs on 3.11 or newer."),
        (f'exec "{sys.executable}" -I -S "$@"', "{} on {} has no torch. Install torch there, or name a Python that"),
    ],
)
def test_a_machine_without_a_python_that_fits(machine, folder, tmp_path, python, said):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "mkdir", "mv"):
        (tools / name).symlink_to(f"/bin/{name}")
    found = tools / "python3"
    if python:
        found.write_text(f"#!/bin/sh\n{python}\n")
        found.chmod(0o755)
    code, err = refused(machine, folder, f"PATH={tools}")
    names = {0: (machine.name, machine.name), 1: (machine.name, found)}["(" in said]
    assert code == 2 and said.format(*((found, machine.name) if "no torch" in said else names)) in err


def test_a_python_that_is_named(machine, folder):
    code, err = refused(machine, folder, "", "--remote-python", "/nowhere/python")
    assert code == 2 and f"/nowhere/python on {machine.name} is not a Python that runs" in err
    done = perfkit(machine, folder, "run", "mlp", "--remote-python", "python3")
    assert ended(done)[0] == 2
    folder_of_one = machine.folder / "venv"
    (folder_of_one / "bin").mkdir(parents=True, exist_ok=True)
    (folder_of_one / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder_of_one / "bin" / "python").chmod(0o755)
    words = ["capture", "--on", machine.name, "--remote-python", "~/../venv", "--", "python", "-c", "print('there')"]
    code, out, err = ended(perfkit(machine, folder, *words))
    assert (code, out) == (1, "there\n") and "venv/bin/python" in err and "Nothing was recorded" in err


def test_a_full_disk_there(machine, folder):
    (folder / "weights.bin").write_bytes(os.urandom(400_000))
    code, err = refused(machine, folder, "ulimit -f 200")
    assert code == 1 and f"On {machine.name}: The disk that holds {machine.place} is full. Free space there." in err
    code, err = refused(machine, folder, "export PERFKIT_CACHE=/dev/null/x")
    assert code == 2 and f"perfkit has no place on {machine.name}" in err and "Set PERFKIT_CACHE there." in err


def test_a_folder_that_must_not_be_made_is_refused_before_anything_else(machine, folder):
    (folder / "runs" / "mine").mkdir(parents=True)
    (folder / "runs" / "mine" / "file").write_text("mine")
    words = ["run", "mlp", "--on", f"{machine.name}-off", "--out", "runs/mine"]
    code, _, err = ended(perfkit(machine, folder, *words))
    assert (code, err) == (2, "perfkit: runs/mine exists and is not a run folder. Choose another --out.")


def test_a_second_run_from_the_same_folder_waits_its_turn(machine, folder):
    process = perfkit(machine, folder, "capture", "--on", machine.name, "--", "python", "waits.py")
    ready(process)
    code, err = refused(machine, folder, "")
    assert code == 1 and f"On {machine.name}: A run from the same folder has not ended there." in err
    os.killpg(process.pid, signal.SIGINT)
    threading.Timer(60, process.kill).start()
    assert ended(process)[0] == 130


def test_what_belongs_to_nsight(machine, folder):
    code, err = refused(machine, folder, "", "--tool", "ncu")
    assert code == 2 and "--on is for --tool torch." in err
