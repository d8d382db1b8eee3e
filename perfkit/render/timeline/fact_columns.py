"""The facts of a timeline's rows as columns: numbers as they are, texts as numbers of their distinct words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from perfkit.analysis.timeline.properties import Column
from perfkit.render.cells import clean

_LONGEST = 4000  # characters of a fact
_UNITS = {
    "FLOP": "FLOP", "bytes": "B", "FLOP/byte": "FLOP/B", "FLOP/s": "FLOP/s", "bytes/s": "B/s", "% of roof": "%",
    "message bytes": "B", "waiting ns": "ns",
    "roof ns": "ns", "headroom ns": "ns", "kernel ns": "ns", "self ns": "ns", "shared memory": "B",
    "est. achieved occupancy %": "%", "tensor pipe %": "%", "DRAM bytes": "B", "DRAM bytes read": "B",
    "DRAM bytes written": "B", "L2 bytes read": "B", "L2 bytes written": "B", "L1 bytes": "B",
}  # fmt: skip
_SHOWN = {
    "roof ns": "roof time", "headroom ns": "headroom", "kernel ns": "kernel time", "self ns": "self time",
    "est. achieved occupancy %": "occupancy", "tensor pipe %": "tensor pipe", "message bytes": "message",
    "waiting ns": "waiting",
}  # fmt: skip


class FactColumns:
    """Takes the facts of rows as columns; what a row lacks is NaN, or −1 for a text."""

    def __init__(self) -> None:
        self._rows = 0
        self._parts: dict[str, list[tuple[int, Column]]] = {}  # the first row of each part, and its values

    def add(self, columns: Mapping[str, Column], rows: int) -> int:
        """Take `rows` more rows (`perfkit.analysis.timeline.properties.of_columns`); return the number of the first."""
        first = self._rows
        for name, values in columns.items():
            self._parts.setdefault(name, []).append((first, values))
        self._rows += rows
        return first

    def finish(self) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
        """Return the header of each fact, and its column, a value a row."""
        described: list[dict[str, Any]] = []
        columns: dict[str, np.ndarray] = {}
        for number, (name, parts) in enumerate(self._parts.items()):
            column = f"fact {number}"
            words, columns[column] = self._column(parts)
            shown, unit = _SHOWN.get(name, name), _UNITS.get(name, "")
            described.append({"name": shown, "unit": unit, "column": column, "words": words})
        return described, columns

    def _column(self, parts: list[tuple[int, Column]]) -> tuple[list[str] | None, np.ndarray]:
        if all(isinstance(values, np.ndarray) or set(map(type, values)) <= _NUMBERS for _, values in parts):
            numbers = np.full(self._rows, np.nan)
            for first, values in parts:
                numbers[first : first + len(values)] = np.asarray(values, float)  # None becomes NaN
            return None, numbers
        words: dict[str, int] = {}
        codes = np.full(self._rows, -1, np.int32)
        for first, values in parts:
            codes[first : first + len(values)] = _codes(values, words)
        return list(words), codes


_NUMBERS = {int, float, type(None)}


def _codes(values: Column, words: dict[str, int]) -> list[int]:
    """The number of each value's text in `words`, which grows by new ones. Equal values are mostly one object."""
    listed = list(values)
    distinct = {id(value): value for value in listed}
    code = {key: _code(value, words) for key, value in distinct.items()}
    return [code[id(value)] for value in listed]


def _code(value: Any, words: dict[str, int]) -> int:
    none = value is None or (isinstance(value, float) and value != value)
    return -1 if none else words.setdefault(_text(value), len(words))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " × ".join(map(str, value))
    if isinstance(value, dict):
        return clean(", ".join(f"{group}: {origin}" for group, origin in value.items()), _LONGEST)
    return "yes" if value is True else clean(str(value), _LONGEST)
