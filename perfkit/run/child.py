"""One backend in a process of its own: the parent's side."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from perfkit import errors
from perfkit.errors import RunFailed
from perfkit.run_folder import RankRun


class Child:
    """A worker process (`perfkit.run.serving`), started on construction; `call` runs one of its commands.

    It works in `folder`, by default this one. What the process prints goes to `log`. Use as a context manager: leaving
    it ends the process.
    """

    def __init__(
        self,
        name: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
        progress: Callable[[str], None] = lambda text: None,
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self.ranks: list[RankRun] = []  # those of a group (`perfkit.run.ranks.group`): one process has none
        self._log = log
        self._progress = progress
        log.parent.mkdir(parents=True, exist_ok=True)
        self._pipe, theirs = Pipe()
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "perfkit.run.serving", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                cwd=folder,
                env={**os.environ, **search_path(), **(environment or {})},
            )
        theirs.close()

    def call(self, command: str, **arguments: Any) -> Any:
        """Run a command of the worker and return its result.

        Raises what the worker raised, and `RunFailed` with the cause when its process died.
        """
        self.begin(command, **arguments)
        return self.result()

    def begin(self, command: str, **arguments: Any) -> None:
        """Start a command of the worker; `result` waits for it. Processes that begin together work at the same time."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the process died: `result` says so
            self._pipe.send((command, arguments))

    def result(self) -> Any:
        """The result of the command that `begin` started; raises as `call` does."""
        try:
            while True:
                kind, value = self._pipe.recv()
                if kind == "progress":
                    self._progress(value)
                elif kind == "done":
                    return value
                else:
                    raise rebuilt(*value)
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise RunFailed(f"{self.name}'s process {self._death()}.", self._last_words()) from error

    def close(self) -> None:
        """End the process and wait for it."""
        self._pipe.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if sys.exc_info()[0] is not None:
            self._process.kill()
        self.close()

    def _death(self) -> str:
        code = self._process.wait()
        if code >= 0:
            return f"ended early with exit code {code}"
        name = signal.Signals(-code).name
        cause = ": it was probably killed for using too much memory" if name == "SIGKILL" else ""
        return f"died with {name}{cause}"

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines() if self._log.exists() else []
        return f"Its last words: {lines[-1][:200]}" if lines else ""


def rebuilt(kind: str, message: str, hint: str) -> errors.PerfkitError:
    """The error that a worker described."""
    return getattr(errors, kind)(message, hint)


def search_path() -> dict[str, str]:
    """Let the child import the same perfkit as this process, also from a checkout that is not installed."""
    import perfkit

    root = str(Path(perfkit.__file__).parent.parent)
    known = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join([root, known]) if known else root}
