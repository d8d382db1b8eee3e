"""The error of a profile that fails a check which its numbers need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfkit.errors import InputError, PerfkitError
from perfkit.run_folder import TraceCheck


class UnusableProfile(InputError):
    """A profile that fails a check which its numbers need (exit code 2).

    `reason` says what failed, without the file's name and without a full stop; `checks` holds what every check found.
    """

    def __init__(self, where: str, reason: str, hint: str, checks: Sequence[TraceCheck] = ()) -> None:
        super().__init__(f"{where} is unusable: {reason}.", hint)
        self.reason, self.checks = reason, list(checks)

    def __reduce__(self) -> tuple[type[PerfkitError], tuple[Any, ...]]:
        where = self.message.removesuffix(f" is unusable: {self.reason}.")
        return type(self), (where, self.reason, self.hint, self.checks)
