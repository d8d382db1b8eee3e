from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit import backends
from perfkit.errors import InputError, UsageError

ROOT = Path(__file__).resolve().parents[2]

MINE = """
from perfkit.backends import AutogradProgram, Backend

class Mine(Backend):
    name = "mine"
    summary = "calls the model"

    def prepare(self, workload, model, settings):
        return AutogradProgram(workload, model, model, workload.optimizer(model, settings))
"""


def test_the_built_in_backends_the_reference_first():
    assert backends.names() == ["eager", "compile", "kernels", "llmc", "thunder", "thunder-llmc", "triton"]
    assert [backends.get(name).name for name in backends.names()] == backends.names()
    assert all(backends.get(name).summary for name in backends.names())


def test_an_unknown_name_is_refused_with_the_nearest_and_all_known():
    with pytest.raises(UsageError) as caught:
        backends.get("thunder-llm")
    assert "Did you mean thunder-llmc?" in caught.value.message
    assert all(name in caught.value.hint for name in backends.names())


def test_looking_for_backends_imports_no_torch():
    look = "from perfkit import backends; backends.available()"
    code = f"import sys; {look}; print(sorted({{'torch', 'thunder'}} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_available_gives_name_summary_and_reason():
    rows = backends.available()
    assert [row[0] for row in rows] == backends.names()
    assert rows[0][2] is None, "eager runs wherever torch does"
    assert all(reason is None or reason.endswith(".") for _, _, reason in rows)


def test_a_file_of_your_own(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    assert backends.get(str(path)).name == "mine"
    assert "mine" not in backends.names()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "defines no backend"),
        (MINE + MINE.replace("Mine", "Other"), "defines 2 backends"),
        ("import nothing_of_this_name\n", "cannot be loaded: ModuleNotFoundError"),
        ("from perfkit.backends.eager import Eager\n", "defines no backend"),
    ],
)
def test_a_file_that_is_not_one(tmp_path, text, message):
    path = tmp_path / "file.py"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        backends.get(str(path))


def test_a_file_that_is_not_there():
    with pytest.raises(InputError, match="There is no file"):
        backends.get("./no_such_backend.py")


@pytest.mark.parametrize("name", ["eager", "compile", "kernels", "llmc", "thunder", "thunder-llmc", "triton"])
def test_without_torch_each_says_so(monkeypatch, name):
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    reason = backends.get(name).unavailable()
    assert reason is not None
    assert "PyTorch is not installed" in reason
