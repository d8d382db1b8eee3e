"""Running a program with perfkit armed inside it: its streams, signals and exit code are its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import perfkit
from perfkit.capture.agent.order import ORDER, VARIABLE, Order, write
from perfkit.errors import RunFailed, UsageError

_FORWARDED = (signal.SIGTERM, signal.SIGHUP)


def run(program: Sequence[str], order: Order, folder: Path) -> int:
    """Run `program` to its end with `order` in `folder`; return its exit code, as a shell reports it.

    Raises `UsageError` for a program that cannot be run.
    """
    check(program)
    try:
        write(folder, ORDER, order)
    except OSError as error:
        raise RunFailed(f"{folder} cannot be written: {error.strerror}.", "Free space, or choose --out.") from error
    try:
        process = subprocess.Popen(list(program), env=environment(folder / ORDER, os.environ))
    except OSError as error:
        raise UsageError(
            f"{program[0]} cannot be run: {error.strerror}.", "Give a program and its arguments."
        ) from error
    with _signals_of(process):
        code = process.wait()
    return code if code >= 0 else 128 - code


def check(program: Sequence[str]) -> None:
    """Raise `UsageError` for a program that is missing."""
    if not program:
        raise UsageError("No program was named.", "Put it after two dashes: perfkit capture -- python train.py")
    first = program[0]
    if shutil.which(first) is None:
        script = Path(first).suffix == ".py" and Path(first).is_file()
        hint = f"perfkit capture -- python {first}" if script else "Give its path, and make it executable (chmod +x)."
        raise UsageError(f"{first} is not a program that can be run.", hint)


def environment(order: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The environment `given` to perfkit, with what arms a Python in it."""
    startup = str(Path(perfkit.__file__).resolve().parent / "capture" / "agent" / "startup")
    known = given.get("PYTHONPATH", "")
    path = os.pathsep.join(filter(None, (startup, known)))
    return {**given, "PYTHONPATH": path, VARIABLE: str(order.resolve())}


@contextlib.contextmanager
def _signals_of(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl-C reaches the program by itself; other requests to end are passed on. perfkit stays until it has ended."""

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
