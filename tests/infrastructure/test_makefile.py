"""`make help`, and the choice of a Python interpreter: one that fits and runs, or a sentence on what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def fake_python(folder: Path, name: str, *, version: tuple[int, int], has_venv: bool = True) -> None:
    """Make a stand-in interpreter that answers the questions of find-python.sh as asked."""
    fits = 0 if version >= (3, 11) else 1
    (folder / name).write_text(
        "#!/bin/sh\n"
        'case "$2" in\n'
        f'  *"import venv"*) exit {0 if has_venv else 1} ;;\n'
        f'  *"print("*) echo python{version[0]}.{version[1]} ;;\n'
        f"  *version_info*) exit {fits} ;;\n"
        "esac\n"
    )
    (folder / name).chmod(0o755)


def find_python(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    shell = shutil.which("sh") or "/bin/sh"
    command = [shell, str(ROOT / "tools/find-python.sh"), *arguments]
    return subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, check=False)


def test_the_newest_python_that_thunder_runs_on_is_taken(tmp_path):
    fake_python(tmp_path, "python3.11", version=(3, 11))
    fake_python(tmp_path, "python3.12", version=(3, 12))
    fake_python(tmp_path, "python3", version=(3, 14))
    assert find_python(tmp_path).stdout.strip() == str(tmp_path / "python3.12")


def test_a_shim_that_runs_nothing_is_passed_over(tmp_path):
    (tmp_path / "python3.13").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "python3.13").chmod(0o755)
    fake_python(tmp_path, "python3", version=(3, 12))
    assert find_python(tmp_path).stdout.strip() == str(tmp_path / "python3")


def test_a_newer_python_is_taken_where_there_is_no_other(tmp_path):
    fake_python(tmp_path, "python3.14", version=(3, 14))
    assert find_python(tmp_path).stdout.strip() == str(tmp_path / "python3.14")


def test_no_python_that_fits_is_a_sentence(tmp_path):
    fake_python(tmp_path, "python3", version=(3, 10))
    done = find_python(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "No Python 3.11 or newer was found" in done.stderr


def test_a_python_without_venv_names_the_package(tmp_path):
    fake_python(tmp_path, "python3", version=(3, 11), has_venv=False)
    done = find_python(tmp_path)
    assert done.returncode == 1
    assert "apt install python3.11-venv" in done.stderr


def test_a_named_python_that_does_not_fit_is_refused(tmp_path):
    fake_python(tmp_path, "python3.12", version=(3, 12))
    fake_python(tmp_path, "python3.9", version=(3, 9))
    done = find_python(tmp_path, "python3.9")
    assert done.returncode == 1
    assert "python3.9 is not a Python 3.11" in done.stderr


def test_somebody_elses_environment_is_left_alone(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "precious").write_text("mine")
    command = ["sh", str(ROOT / "tools/install.sh"), str(tmp_path / "env"), "run"]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "has no pip that runs" in done.stderr
    assert (tmp_path / "env" / "precious").read_text() == "mine"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_alone_lists_the_targets():
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {line.split()[0] for line in done.stdout.splitlines()[1:]} >= {"demo", "test", "test-fast", "lint", "wheel"}
