"""Which implementation of an operation runs: the fastest that exists, unless a version or a language is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from perfkit.errors import Unavailable, UsageError
from perfkit.kernels.declare import Implementation, Operation
from perfkit.kernels.languages import candidates


@dataclass(frozen=True)
class WantedVersion:
    """The wanted version number and language; None where any will do."""

    version: int | None = None
    language: str | None = None


# Stack of what every operation must use: the environment's choice, and above it those of `use_version` blocks.
_forced: list[WantedVersion] = [WantedVersion()]


def wanted() -> WantedVersion:
    """Return the choice of the innermost `use_version`, else PERFKIT_KERNEL_VERSION as it was when kernels were
    loaded."""
    return _forced[-1]


def read_environment() -> None:
    """Take over PERFKIT_KERNEL_VERSION. Raises `UsageError` when it is not a number."""
    text = os.environ.get("PERFKIT_KERNEL_VERSION")
    if text and not text.isdigit():
        raise UsageError(f"PERFKIT_KERNEL_VERSION is {text!r}.", "Set it to a version number such as 1, or unset it.")
    _forced[0] = WantedVersion(int(text) if text else None)


@contextmanager
def use_version(version: int | None = None, language: str | None = None) -> Iterator[None]:
    """Run version `version` of every operation in the block (1 is the naive one), in every thread.

    `language` ("c", "triton", …) leaves only the versions written in it.
    """
    _forced.append(WantedVersion(version, language))
    try:
        yield
    finally:
        _forced.pop()


def choose(operation: Operation, device: str, dtype: str, wanted: WantedVersion) -> Implementation:
    """The implementation to run. Raises `Unavailable` if missing.

    When no version is asked for: the one that declares to be the fastest in this precision, else the highest.
    """
    found = candidates(operation, device, dtype, wanted.language)
    matching = [i for i in found if wanted.version in (None, i.version)]
    if matching and wanted.version is None:
        return next((i for i in matching if dtype in i.fastest_in), matching[-1])
    if matching:  # of several languages that have the version asked for, the plainest
        return matching[0]
    which = "" if wanted.version is None else f" {wanted.version}"
    language = "" if wanted.language is None else f" in {wanted.language}"
    others = sorted({f"{i.version} ({i.language}: {', '.join(i.dtypes)})" for i in operation.implementations})
    raise Unavailable(
        f"{operation.qualified_name} has no version{which}{language} for {dtype} on {device}.",
        f"It has {'; '.join(others) or 'none'}.",
    )
