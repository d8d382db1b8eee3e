"""One run of any program in a copy of its folder: steps timed from inside, or the whole program from outside."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfkit.capture import launched
from perfkit.capture.agent.order import ORDER, Order, ProcessResult, read_results, write
from perfkit.errors import UsageError
from perfkit.tries.trees import Tree

_KEPT = 1 << 24  # characters of an output that are looked at
_LOOK_S = 0.01


@dataclass(frozen=True)
class Ran:
    """One run: exit code (None: it was ended after its time), what it printed, ns of its steps, and facts.

    `processes` is the number of its processes that had steps.
    """

    code: int | None
    output: str
    warmup_ns: list[float] = field(default_factory=list)
    samples_ns: list[float] = field(default_factory=list)
    result: ProcessResult = field(default_factory=ProcessResult)
    seconds: float = 0.0
    processes: int = 0

    @property
    def problem(self) -> str:
        """Why it gave no times; "" where it did."""
        if self.code is None:
            return f"it did not end within {self.seconds:.0f} s"
        if self.code:
            return f"it ended with exit code {self.code}: {_last(self.output)}"
        return "" if self.samples_ns else self.result.problem or "it runs no Python that imports torch"


def run(command: Sequence[str], side: Tree, order: Order, scratch: Path, limit_s: float) -> Ran:
    """Run `command` in the copy `side`, for at most `limit_s` seconds; the whole program where the order says so.

    Raises `UsageError` for a program that cannot be run.
    """
    with Running(command, side, order, scratch) as one:
        return one.ended(limit_s)


class Running:
    """A program that runs in the copy `side`, until the end of the `with` at the latest; what it started ends with it.

    With `waits` it waits before its steps are timed, and after them. Raises `UsageError` for a program that cannot be
    run.
    """

    def __init__(self, command: Sequence[str], side: Tree, order: Order, scratch: Path, waits: bool = False) -> None:
        words = [side.moved(word) for word in command]
        scratch.mkdir(parents=True)
        environment = _environment(side)
        if not order.whole:
            write(scratch, ORDER, dataclasses.replace(order, waits_for=os.getpid() if waits else 0))
            environment = launched.environment(scratch / ORDER, environment)
        self._whole, self._scratch, self._stopped = order.whole, scratch, False
        self._printed = scratch / "output.txt"
        self._begun = time.perf_counter_ns()
        try:
            with self._printed.open("wb") as output:
                self._process = subprocess.Popen(
                    words, cwd=side.cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise UsageError(f"{words[0]} cannot be run: {error.strerror}.", "Give a program after --.") from error

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def comes_to(self, said: str, limit_s: float) -> bool:
        """Return whether the program waits there (`programs.waiting`), once it does; not where it ends, or `limit_s`
        are over, first."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            over = self._process.poll() is not None
            if any(self._scratch.glob(f"*/{said}")):
                return True
            if over:
                return False
            time.sleep(_LOOK_S)
        return False

    def tell(self, word: str) -> None:
        """Let the program go on from where it waits."""
        (self._scratch / word).touch()

    def ended(self, limit_s: float) -> Ran:
        """Wait for the end of the program, for at most `limit_s` seconds from now."""
        code = self._code(limit_s)
        taken = float(time.perf_counter_ns() - self._begun)
        with self._printed.open("rb") as output:
            text = output.read(_KEPT).decode(errors="replace")
        if self._whole:
            result = ProcessResult(steps_are="a step is the whole program")
            return Ran(code, text, [], [] if code else [taken], result, taken / 1e9)
        found = [one for _, one in read_results(self._scratch)]
        result = max(found, key=lambda one: len(one.step_ns), default=ProcessResult())
        processes = sum(bool(one.found) for one in found)
        return Ran(code, text, result.warmup_ns, result.step_ns, result, taken / 1e9, processes)

    def _code(self, limit_s: float) -> int | None:
        """The exit code; None where the program was killed after its time."""
        try:
            code = self._process.wait(limit_s)
            return code if code >= 0 else 128 - code
        except subprocess.TimeoutExpired:
            return None
        finally:
            self._stop()

    def _stop(self) -> None:
        if self._stopped:  # its number may be another process's by now
            return
        self._stopped = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _environment(side: Tree) -> dict[str, str]:
    """The user's own, with the copy before everything that Python imports: a package installed from the user's folder
    is then that of the copy."""
    known = [side.moved(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    own = [str(place) for place in (side.cwd, side.root, side.root / "src") if place.is_dir()]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys([*own, *known])), "PYTHONDONTWRITEBYTECODE": "1"}


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"
