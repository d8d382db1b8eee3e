"""`perfkit try` and `perfkit history` on programs of which it is known whether a change helps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit.tries import log
from tests.support.render.schema import wrong
from tests.tries.test_trees import git

# A program without torch, whose time is known: it sleeps.
PROGRAM = """\
import random
import time

random.seed(0)
TIME, RATE, NAME = 0.3, 1.0, "loss"
for step in range(3):
    print(f"step {step} {NAME} {3 - RATE * step / 10 + random.random() / 100:.4f}")
time.sleep(TIME)
"""
CHANGES = {
    "faster": ("TIME, RATE", "0.3", "0.02"),
    "slower": ("TIME, RATE", "0.3", "0.6"),
    "wrong": ("TIME, RATE", "0.3, 1.0", "0.02, 1.1"),
    "noise": ("TIME, RATE", "0.3", "0.3001"),
    "fails": ("TIME, RATE", "TIME, RATE", "TIME, RATES"),
    "unseeded": ("random.seed", "0", "None"),
    "silent": ("TIME, RATE", "loss", "other"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def changed(project: Path, name: str) -> None:
    """Make one of `CHANGES` in the folder."""
    line, old, new = CHANGES[name]
    file = project / "train.py"
    lines = [text.replace(old, new) if text.startswith(line) else text for text in file.read_text().splitlines()]
    file.write_text("\n".join(lines) + "\n")


DECIDED = {
    "faster": ("accept", "right", "The results are right"),
    "slower": ("reject", "right", "slower"),
    "wrong": ("reject", "wrong", "loss step 2"),
    "fails": ("reject", "unknown", "It fails after the change: it ended with exit code 1: NameError"),
}
WHOLE = ("--whole", "--", "python3", "train.py")


@pytest.mark.parametrize("name", DECIDED)
def test_decisions(name: str, project: Path, run_cli: Callable[..., Any]) -> None:
    decision, results, said = DECIDED[name]
    changed(project, name)
    text = (project / "train.py").read_text()
    done = run_cli(["try", "--brief", *WHOLE], cwd=project)
    answer = json.loads(done.stdout)
    assert (answer["decision"], answer["results"]["status"]) == (decision, results), done.stdout
    assert said in answer["verdict"][0] and answer["verdict"][0].startswith(decision)
    assert done.rc == (decision != "accept") and len(done.stdout.encode()) <= 4096 and not list(wrong(answer))
    assert (project / "train.py").read_text() == text
    if name in ("faster", "slower"):
        ratio = answer["pairs"][0]["step"]["ratio"]
        assert ratio[1] <= ratio[0] <= ratio[2] and (ratio[0] < 1) == (name == "faster")
    else:
        assert "pairs" not in answer  # a speed of wrong results is not measured
    logged = json.loads((project / log.root() / log.FILE).read_text())
    assert logged["decision"] == decision and logged["files"] == ["train.py"] and len(logged["machine"]) == 12
    patch = project / log.root() / log.CHANGES / f"{logged['change']}.patch"
    git(project, "checkout", "-q", "train.py")
    git(project, "apply", str(patch))
    assert (project / "train.py").read_text() == text


@pytest.mark.full
def test_a_change_within_noise_is_not_accepted(project: Path, run_cli: Callable[..., Any]) -> None:
    changed(project, "noise")
    done = run_cli(["try", "--launches", "8", "--resolution", "90%", "--json", *WHOLE], cwd=project)
    found = json.loads(done.stdout)
    assert done.rc == 1 and found["decision"] == "reject" and "No difference is shown" in found["reason"]
    assert len(found["comparison"]["pairs"][0]["step"]["judgement"]["unit"]) and found["checked"]["count"] == 3


@pytest.mark.full
@pytest.mark.parametrize("name", ["unseeded", "silent"])
def test_unknown_results_are_not_accepted(name: str, project: Path, run_cli: Callable[..., Any]) -> None:
    """However fast it is."""
    changed(project, name)
    git(project, "commit", "-qam", "second")
    changed(project, "faster")
    done = run_cli(["try", "--brief", *WHOLE], cwd=project)
    answer = json.loads(done.stdout)
    assert done.rc == 1 and answer["decision"] == "cannot tell" and answer["results"]["status"] == "unknown"
    assert {"unseeded": "set a seed", "silent": "prints no loss"}[name] in answer["verdict"][0]
    if name == "silent":  # a value of another name
        done = run_cli(["try", "--brief", "--values", "other", *WHOLE], cwd=project)
        assert done.rc == 0, done.stdout


USAGE = {
    "nothing differs": (["try", *WHOLE], "Nothing differs between the two sides."),
    "no program": (["try"], "Missing argument"),
    "unknown program": (["try", "--before", ".", "--after", ".", "--", "no-such"], "Nothing differs"),
    "two changes": (["try", "--patch", "x.patch", "--after", "HEAD", *WHOLE], "--patch and --after both say"),
    "nothing to keep": (["try", "--keep", *WHOLE], "--keep is about a patch"),
    "kept and before": (["try", "--keep", "--patch", "x", "--before", "HEAD", *WHOLE], "--before with --keep both say"),
    "no patch": (["try", "--patch", "x.patch", *WHOLE], "x.patch cannot be read: No such file or directory."),
    "tolerance": (["try", "--tolerance", "much", *WHOLE], "--tolerance much is not a share."),
    "launches": (["try", "--launches", "0", *WHOLE], "--launches must be at least 1."),
    "json and brief": (["try", "--json", "--brief", *WHOLE], "--brief is JSON of its own."),
    "no log": (["history"], ".perfkit/tries has no log of tries."),
}


@pytest.mark.parametrize("name", USAGE)
def test_wrong_usage(name: str, project: Path, run_cli: Callable[..., Any]) -> None:
    words, said = USAGE[name]
    done = run_cli(words, cwd=project)
    assert done.rc == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not (project / ".perfkit").exists()


def test_a_program_that_does_not_run_before(project: Path, run_cli: Callable[..., Any]) -> None:
    changed(project, "faster")
    for words, said in ((["--", "python3", "no-such.py"], "can't open file"), (["--", "no-such"], "is not a program")):
        done = run_cli(["try", "--whole", *words], cwd=project)
        assert done.rc in (1, 2) and said in done.stderr and "Traceback" not in done.stderr


def _line(number: int, machine: str, command: str = "python") -> bytes:
    one = {"id": f"t{number}", "created": "2026-01-01", "machine": machine, "machine_is": f"cpu {machine}",
           "command": [command], "change": "c" * 12, "files": ["a.py"], "decision": "accept", "reason": "It is.",
           "results": "right", "before_ns": 2e6, "after_ns": 1e6, "ratio": [0.5, 0.4, 0.6]}  # fmt: skip
    return json.dumps(one).encode() + b"\n"


def test_tries_of_other_machines_stay_apart(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    """Each machine and command has a table of its own; what is damaged is counted."""
    lines = [_line(1, "a"), _line(2, "b"), b"{damaged\n", _line(3, "a"), _line(4, "a", "other")]
    (tmp_path / log.FILE).write_bytes(b"".join(lines))
    found = log.read(tmp_path, "b")
    assert [(group.machine, group.command, [one.id for one in group.tries]) for group in found.groups] == [
        ("b", ["python"], ["t2"]), ("a", ["python"], ["t1", "t3"]), ("a", ["other"], ["t4"]),
    ]  # fmt: skip
    assert found.damaged == 1 and found.groups[0].here
    done = run_cli(["history", "--log", tmp_path, "--brief"])
    answer = json.loads(done.stdout)
    assert done.rc == 0 and not list(wrong(answer)) and len(answer["tables"]) == 3
    assert "not comparable" in answer["verdict"][0] and "1 lines of the log are damaged" in answer["unknown"][0]
    assert (tmp_path / log.FILE).read_bytes() == b"".join(lines)
