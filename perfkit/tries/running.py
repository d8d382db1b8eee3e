"""One run of any program in a copy of its folder: steps timed from inside, or the whole program from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfkit.capture import launched
from perfkit.errors import UsageError
from perfkit.programs.order import ORDER, Order, Result, read_results, write
from perfkit.tries.trees import Tree

_KEPT = 1 << 24  # characters of an output that are looked at


@dataclass(frozen=True)
class Ran:
    """One run: exit code (None: it was ended after its time), what it printed, ns of its steps, and facts."""

    code: int | None
    output: str
    warmup_ns: list[float] = field(default_factory=list)
    samples_ns: list[float] = field(default_factory=list)
    result: Result = field(default_factory=Result)
    seconds: float = 0.0

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
    words = [side.moved(word) for word in command]
    scratch.mkdir(parents=True)
    environment = _environment(side)
    if not order.whole:
        write(scratch, ORDER, order)
        environment = launched.environment(scratch / ORDER, environment)
    started = time.perf_counter_ns()
    with open(scratch / "output.txt", "w+b") as output:
        try:
            process = subprocess.Popen(
                words, cwd=side.cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise UsageError(f"{words[0]} cannot be run: {error.strerror}.", "Give a program after --.") from error
        code = _ended(process, limit_s)
        taken = float(time.perf_counter_ns() - started)
        output.seek(0)
        text = output.read(_KEPT).decode(errors="replace")
    if order.whole:
        return Ran(
            code, text, [], [] if code else [taken], Result(steps_are="a step is the whole program"), taken / 1e9
        )
    found = [one for _, one in read_results(scratch)]
    result = max(found, key=lambda one: len(one.step_ns), default=Result())
    return Ran(code, text, result.warmup_ns, result.step_ns, result, taken / 1e9)


def _environment(side: Tree) -> dict[str, str]:
    """The user's own, with the copy before everything that Python imports: a package installed from the user's folder
    is then that of the copy."""
    known = [side.moved(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    own = [str(place) for place in (side.cwd, side.root, side.root / "src") if place.is_dir()]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys([*own, *known])), "PYTHONDONTWRITEBYTECODE": "1"}


def _ended(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """Wait for the end of a program; None where it was killed after its time. What it started ends with it."""
    try:
        code = process.wait(limit_s)
        return code if code >= 0 else 128 - code
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"
