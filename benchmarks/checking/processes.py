"""Processes that prepare side by side, and measure one at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.checking.witness import READY, STEP_NS

ROOT = Path(__file__).resolve().parents[2]
BEGINS = ": warming up"  # what `perfkit run` says when everything is prepared, right before it measures
PATIENCE_S = 300.0


def environment() -> dict[str, str]:
    """That in which a script imports perfkit and the benchmarks from this checkout."""
    known = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), known)))}


def script(name: str, *arguments: object) -> list[str]:
    """The command that runs a script of `benchmarks/`."""
    return [sys.executable, str(ROOT / "benchmarks" / name), *map(str, arguments)]


class Process:
    """A process in the background. What it says on stderr goes to `log`, what it prints is kept."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        self._output = log.with_suffix(".out")
        with log.open("w") as errors, self._output.open("w") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment()
            )

    def result(self) -> tuple[int, str]:
        """Its exit code and what it printed, once it has ended."""
        code = self._process.wait(timeout=PATIENCE_S)
        return code, self._output.read_text()

    def backends(self) -> list[dict[str, Any]]:
        """The backends of the report that it prints as JSON. Raises `RuntimeError` where it prints none.

        Its exit code is no matter: it is 1 where a backend failed, and the report says which.
        """
        code, printed = self.result()
        try:
            found: list[dict[str, Any]] = json.loads(printed)["backends"]
        except (ValueError, KeyError):
            raise RuntimeError(f"it ended with {code} and without a report: {self.last_words()}") from None
        return found

    def last_words(self) -> str:
        return " ".join(self.log.read_text(errors="replace").split())[-400:]

    def close(self) -> None:
        """End it if it still runs."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class HeldRun(Process):
    """A `perfkit run` that prepares in the background, and is stopped where its measuring would begin.

    Stopped is only the process that drives the others: they wait for its next command.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        super().__init__(command, log)
        self._prepared = threading.Event()
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()

    def await_prepared(self) -> None:
        """Wait until it is stopped, or has ended early. Raises `TimeoutError` when it is neither for long."""
        if not self._prepared.wait(PATIENCE_S):
            raise TimeoutError(f"not prepared after {PATIENCE_S:.0f} s: {self.last_words()}")

    def go_on(self) -> None:
        """Let it measure."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)

    def _follow(self) -> None:
        while self._process.poll() is None:
            if BEGINS in self.log.read_text(errors="replace"):
                self._process.send_signal(signal.SIGSTOP)
                break
            time.sleep(0.01)
        self._prepared.set()


class Witness(Process):
    """`witness.py`, built in the background, which works each time that it is told to."""

    def __init__(self, work: Path, name: str, command: Sequence[str] = (), *arguments: object) -> None:
        self._go = work / f"{name}.go"
        self._go.unlink(missing_ok=True)
        super().__init__([*command, *script("checking/witness.py", *arguments, self._go)], work / f"{name}.log")
        self._read = 0

    def await_ready(self) -> None:
        """Wait until it is built, or has done what it was told. Raises `RuntimeError` when it ends before."""
        self._line(READY)

    def go(self) -> None:
        """Let it work."""
        self._go.touch()

    def step_times(self) -> list[float]:
        """Let it time steps; their times in ns."""
        self.go()
        times: list[float] = json.loads(self._line(STEP_NS))
        self.await_ready()
        return times

    def _line(self, start: str) -> str:
        """The rest of its next line that begins with `start`."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            ended = self._process.poll() is not None
            lines = self._output.read_text().splitlines(keepends=True)[self._read :]
            for line in lines:
                if not line.endswith("\n"):
                    break
                self._read += 1
                if line.startswith(start):
                    return line.removeprefix(start).strip()
            if ended:
                break
            time.sleep(0.02)
        raise RuntimeError(f"{self.log.stem} ended, or never came so far: {self.last_words()}")
