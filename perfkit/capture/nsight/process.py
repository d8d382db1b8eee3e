"""Run a profiler around a program: its messages are separated from the program's output, and time is limited.

The tools write to the streams that the program writes to as well. Lines of theirs start with `==WORD==` (ncu) or are
known by their text (nsys); everything else is the program's and goes on to `output` as it came.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from perfkit.errors import Unavailable

_GRACE_S = 5.0  # between asking a process to end and ending it
_CHUNK = 1 << 16
_KEPT_LINES = 2000


@dataclass
class ToolResult:
    """How a tool ended: its exit code, its own lines, the program's last lines, and whether the limit ended it."""

    code: int = 0
    said: list[str] = field(default_factory=list)
    printed: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    timed_out: bool = False

    @property
    def how(self) -> str:
        """How the tool ended, in words."""
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        with contextlib.suppress(ValueError):
            return f"died with {signal.Signals(-self.code).name}"
        return f"died of signal {-self.code}"

    @property
    def last_words(self) -> str:
        """The last line that the program printed, as a sentence; "" for none."""
        return f"The program's last words: {self.printed[-1].strip()[:200]}" if self.printed else ""


def follow(
    command: Sequence[str],
    is_own: Callable[[str], bool],
    report: Callable[[str], None],
    output: Callable[[str], None],
    environment: Mapping[str, str] | None = None,
    limit_s: float | None = None,
) -> ToolResult:
    """Run `command` to its end, or to `limit_s`, after which it and all its children are ended.

    `is_own` says whether a line, perhaps not yet whole, is the tool's; `report` gets each such line as it grows,
    `output` each line of the program. Raises `Unavailable` when the tool cannot be started.
    """
    ended = ToolResult()
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(f"`{command[0]}` cannot be started: {error.strerror or error}.") from error
    lines = _Lines(ended, is_own, report, output)
    try:
        ended.timed_out = not _read(process, lines, limit_s)
    finally:
        _end(process)
        lines.close()
        process.stdout.close()  # type: ignore[union-attr]
    ended.code = process.returncode
    return ended


class _Lines:
    """Cuts a stream of bytes into lines and gives each to whom it belongs."""

    def __init__(
        self,
        ended: ToolResult,
        is_own: Callable[[str], bool],
        report: Callable[[str], None],
        output: Callable[[str], None],
    ) -> None:
        self._ended, self._is_own, self._report, self._output = ended, is_own, report, output
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        *whole, self._rest = (self._rest + chunk).replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            self._line(line.decode("utf-8", "replace"))
        growing = self._rest.decode("utf-8", "replace")
        if self._is_own(growing):
            self._report(growing)

    def close(self) -> None:
        if self._rest:
            self._line(self._rest.decode("utf-8", "replace"))

    def _line(self, line: str) -> None:
        if self._is_own(line):
            if len(self._ended.said) < _KEPT_LINES:
                self._ended.said.append(line)
            self._report(line)
        else:
            if line.strip():
                self._ended.printed.append(line)
            self._output(line)


def _read(process: subprocess.Popen[bytes], lines: _Lines, limit_s: float | None) -> bool:
    """Feed what the process writes until it ends; False when the limit came first."""
    assert process.stdout is not None
    deadline = None if limit_s is None else time.monotonic() + limit_s
    while True:
        if deadline is not None and time.monotonic() > deadline:
            return False
        ready, _, _ = select.select([process.stdout], [], [], 0.2)
        if ready:
            chunk = os.read(process.stdout.fileno(), _CHUNK)
            if not chunk:
                return _waited(process, deadline)
            lines.feed(chunk)
        elif process.poll() is not None:  # ended, though something it started keeps the stream open
            return True


def _waited(process: subprocess.Popen[bytes], deadline: float | None) -> bool:
    try:
        process.wait(None if deadline is None else max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started, asking first."""
    if process.poll() is None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            _signal(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
                break
    _signal(process.pid, signal.SIGKILL)  # children that outlive the tool would keep the GPU
    process.wait()


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise
