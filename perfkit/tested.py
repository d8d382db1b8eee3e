"""The versions of torch and Python that perfkit's tests ran with, and what they gave.

`tools/torch_versions.py` writes tested.json, docs/versions.md is made from it, and `perfkit doctor` compares with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

FILE = Path(__file__).with_name("tested.json")


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a group of tests, and its day; `sources` is the digest of what they test."""

    passed: int
    skipped: int
    failed: tuple[str, ...]
    date: str
    sources: str


class TestedEnvironment(msgspec.Struct, frozen=True):
    """An environment: exact versions, and the outcome of each group of tests that ran there."""

    torch: str
    python: str
    groups: dict[str, Outcome]


def read(file: Path = FILE) -> list[TestedEnvironment]:
    """Every environment, by torch and Python."""
    found = msgspec.json.decode(file.read_bytes(), type=list[TestedEnvironment])
    return sorted(found, key=lambda t: (_numbers(t.torch), _numbers(t.python)))


def torches() -> list[str]:
    """Each tested version of torch, oldest first."""
    return list(dict.fromkeys(t.torch for t in read()))


def pythons() -> list[str]:
    """Each tested Python as MAJOR.MINOR, oldest first."""
    return sorted({minor(t.python) for t in read()}, key=_numbers)


def untested(version: str, known: Iterable[str], get: str) -> str:
    """Return a sentence for a version whose MAJOR.MINOR is not among the `known` ones; "" for one that was tested.

    `get` says how to get the newest of the known ones, which it names by {}.
    """
    versions = list(known)
    if not versions or minor(version) in map(minor, versions):
        return ""
    return f"Not tested with this one, but with {', '.join(versions)}. If something fails: {get.format(versions[-1])}"


def minor(version: str) -> str:
    """MAJOR.MINOR of a version."""
    return ".".join(version.split(".")[:2])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
