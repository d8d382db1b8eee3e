"""Errors that a person reads: one clear sentence, the next step, and the exit code.

Every error that a user can cause is a `PerfkitError`. The command line prints `message` and `hint` on stderr and exits
with `exit_code`; anything else that escapes is a defect of perfkit.
"""

from __future__ import annotations

import importlib.util
from typing import Any


class PerfkitError(Exception):
    """A failure that perfkit understands.

    `message` is one sentence that says what is wrong; `hint` says what to do next (empty when there is nothing to do).
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()

    def __reduce__(self) -> tuple[type[PerfkitError], tuple[Any, ...]]:
        return type(self), (self.message, self.hint)


class UsageError(PerfkitError):
    """A wrong option, name or combination (exit code 2)."""

    exit_code = 2


class InputError(PerfkitError):
    """A file or folder that is missing, damaged or not what it should be (exit code 2)."""

    exit_code = 2


class Unavailable(PerfkitError):
    """Something this machine lacks: a compiler, a GPU, a package (exit code 2)."""

    exit_code = 2


class RunFailed(PerfkitError):
    """A workload, a backend or a tool died or could not finish (exit code 1)."""


class OutOfMemory(RunFailed):
    """A run that found too little memory (exit code 1)."""


class CheckFailed(PerfkitError):
    """A check was made and did not hold: a wrong result, a missed gate (exit code 1)."""


def first_line(error: Exception, most: int | None = None) -> str:
    """Return the first line of what `error` says without its full stop, at most `most` characters; else its type."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")[:most]


def torch_installed() -> bool:
    """Return whether torch can be imported, without importing it."""
    return importlib.util.find_spec("torch") is not None
