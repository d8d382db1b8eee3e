"""Running programs with and without perfkit in them."""

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from perfkit.capture import launched, program
from perfkit.programs.order import TRACE, Order, Result, read_results

HERE = Path(__file__).parent
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@dataclass
class Captured:
    """What a program printed, how it ended, and what its processes told."""

    code: int
    stdout: bytes
    stderr: bytes
    results: list[tuple[Path, Result]]

    @property
    def recorded(self) -> list[tuple[Path, Result]]:
        return [one for one in self.results if one[1].recorded]

    def table(self, number=0):
        """The kernel table of what a process recorded, trace checks included."""
        path, result = self.recorded[number]
        return program._table(path / TRACE, result)


def command(name):
    return [sys.executable, str(HERE / f"{name}.py")]


def capture(words, folder, order=None, before=None):
    """Run `words` with `order` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err, _streams(out, err):
        code = launched.run(words, order or Order(warmup=3, steps=2), folder / "processes")
    printed = [(folder / name).read_bytes() for name in ("stdout", "stderr")]
    return Captured(code, *printed, read_results(folder / "processes"))


def alone(words):
    """Run `words` without perfkit."""
    return subprocess.run(words, capture_output=True, env={**os.environ, **ENVIRONMENT}, timeout=200)


@contextlib.contextmanager
def _streams(out, err):
    """This process's streams, which the program inherits."""
    kept = os.dup(1), os.dup(2)
    sys.stdout.flush()
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for one in kept:
            os.close(one)
