"""Which version of an operation runs: the fastest that exists, unless one is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from perfkit.errors import Unavailable, UsageError
from perfkit.kernels.declare import Implementation, Operation
from perfkit.kernels.languages import candidates

# What every operation must use: what the environment says, and above it what `use_version` blocks say.
_forced: list[int | None] = [None]


def forced_version() -> int | None:
    """The version asked for by the innermost `use_version`, else by PERFKIT_KERNEL_VERSION when kernels were loaded."""
    return _forced[-1]


def read_environment() -> None:
    """Take over PERFKIT_KERNEL_VERSION. Raises `UsageError` when it is no number."""
    text = os.environ.get("PERFKIT_KERNEL_VERSION")
    if text and not text.isdigit():
        raise UsageError(f"PERFKIT_KERNEL_VERSION is {text!r}.", "Set it to a version number such as 1, or unset it.")
    _forced[0] = int(text) if text else None


@contextmanager
def use_version(version: int) -> Iterator[None]:
    """Within the block, in every thread, every operation runs its version `version` (1 is the naive one)."""
    _forced.append(version)
    try:
        yield
    finally:
        _forced.pop()


def choose(operation: Operation, device: str, dtype: str, version: int | None) -> Implementation:
    """The implementation to run; the highest version when `version` is None. Raises `Unavailable` if missing."""
    found = candidates(operation, device, dtype)
    if version is None and found:
        return found[-1]
    matching = [i for i in found if i.version == version]
    if matching:
        return matching[0]
    which = "" if version is None else f" {version}"
    others = sorted({f"{i.version} ({i.language}: {', '.join(i.dtypes)})" for i in operation.implementations})
    raise Unavailable(
        f"{operation.qualified_name} has no version{which} for {dtype} on {device}.",
        f"It has {'; '.join(others) or 'none'}.",
    )
