"""Results of the checks of a profile, and the error of a profile that fails one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perfkit.errors import InputError, PerfkitError


class TraceCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a check of a profile. `holds`: None where it does not apply to the profile.

    `figure` is a share (0 to 1) or ns, as `unit` says; `events` of `of` failed. `needed`: a failure makes the profile
    unusable. `sentence` says what failed, or is a footnote to a check that holds.
    """

    name: str
    says: str  # what holds, in words
    holds: bool | None = None
    figure: float | None = None
    unit: str = ""
    events: int = 0
    of: int = 0
    needed: bool = False
    sentence: str = ""


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
