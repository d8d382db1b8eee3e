"""Additions of perfkit to a snapshot of a program that it watched: owners by address, and what blocks retained."""

from __future__ import annotations

from typing import Any

from perfkit.memory.kinds import KINDS
from perfkit.memory.records import NamedTensor, Retained

KNOWN, BLOCKS = "perfkit_known", "perfkit_blocks"


def known(entries: Any) -> dict[int, NamedTensor]:
    """Return the owners by address; without entries that are not as perfkit writes them."""
    return {entry[2]: NamedTensor(entry[0], entry[1], entry[3]) for entry in _lists(entries) if is_owner(entry)}


def is_owner(entry: Any) -> bool:
    """Return true for a kind, a name, an address and a size."""
    if not isinstance(entry, list) or len(entry) != 4:
        return False
    kind, name, address, size = entry
    words = isinstance(kind, str) and kind in KINDS and isinstance(name, str)
    return words and all(type(n) is int and 0 < n < 1 << 60 for n in (address, size))


def blocks(entries: Any) -> list[Retained]:
    """Return what blocks retained next to their input."""
    found = []
    for entry in _lists(entries):
        if len(entry) == 4 and isinstance(entry[0], str) and all(type(n) is int for n in entry[1:3]):
            took = entry[3] if type(entry[3]) is float and entry[3] >= 0 else None
            found.append(Retained(entry[0], max(0, entry[1] - entry[2]), took))
    return found


def _lists(entries: Any) -> list[list[Any]]:
    return [entry for entry in entries if isinstance(entry, list)] if isinstance(entries, list) else []
