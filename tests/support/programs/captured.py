"""Running programs with and without perfkit in them: as forks that have torch, or in interpreters of their own."""

import contextlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfkit.capture import launched, program
from perfkit.capture.agent.order import TRACE, Order, ProcessResult, read_results
from tests.support.forks import started_program

HERE = Path(__file__).parent
ENVIRONMENT = {"HF_HUB_OFFLINE": "1"}


@dataclass
class Captured:
    """Output, exit code and reports of a program and its processes."""

    code: int
    stdout: bytes
    stderr: bytes
    results: list[tuple[Path, ProcessResult]]

    @property
    def recorded(self) -> list[tuple[Path, ProcessResult]]:
        return [one for one in self.results if one[1].recorded]

    def table(self, number=0):
        """The kernel table of what a process recorded, trace checks included."""
        path, result = self.recorded[number]
        return program._table(path / TRACE, result, path)


def command(name):
    return [sys.executable, str(HERE / f"{name}.py")]


def capture(words, folder, order=None, fresh=False):
    """Run `words` with `order` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    order = order or Order(warmup=3, steps=2)
    with _written(folder / "stdout", folder / "stderr"), _start(fresh):
        code = launched.run(words, order, folder / "processes")
    printed = [(folder / name).read_bytes() for name in ("stdout", "stderr")]
    return Captured(code, *printed, read_results(folder / "processes"))


def alone(words, fresh=False):
    """Run `words` without perfkit."""
    env = {**os.environ, **ENVIRONMENT}
    with tempfile.TemporaryDirectory() as scratch:
        out, err = Path(scratch) / "stdout", Path(scratch) / "stderr"
        with _written(out, err), _start(fresh):
            code = launched.subprocess.Popen(words, env=env).wait(200)
        return subprocess.CompletedProcess(words, code, out.read_bytes(), err.read_bytes())


@contextlib.contextmanager
def _start(fresh):
    """Have `perfkit.capture.launched` start programs as forks, unless `fresh`."""
    with pytest.MonkeyPatch.context() as patch:
        if not fresh:
            patch.setattr(launched, "subprocess", SimpleNamespace(Popen=started_program))
        yield


@contextlib.contextmanager
def _written(out, err):
    """Have this process's streams, which the program inherits, go to two files."""
    kept = os.dup(1), os.dup(2)
    sys.stdout.flush()
    for number, path in enumerate((out, err), 1):
        with open(path, "wb") as file:
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for one in kept:
            os.close(one)
