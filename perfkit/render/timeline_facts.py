"""The facts of a timeline's rows as columns: numbers as they are, texts as numbers of their distinct words."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.render.cells import clean

_LONGEST = 4000  # characters of a fact
_UNITS = {
    "FLOP": "FLOP", "bytes": "B", "FLOP/byte": "FLOP/B", "FLOP/s": "FLOP/s", "bytes/s": "B/s", "% of roof": "%",
    "roof ns": "ns", "headroom ns": "ns", "kernel ns": "ns", "self ns": "ns", "shared memory": "B",
    "est. achieved occupancy %": "%", "tensor pipe %": "%", "DRAM bytes": "B", "DRAM bytes read": "B",
    "DRAM bytes written": "B", "L2 bytes read": "B", "L2 bytes written": "B", "L1 bytes": "B",
}  # fmt: skip
_SHOWN = {
    "roof ns": "roof time", "headroom ns": "headroom", "kernel ns": "kernel time", "self ns": "self time",
    "est. achieved occupancy %": "occupancy", "tensor pipe %": "tensor pipe",
}  # fmt: skip


class Facts:
    """Takes the facts of one row after another; what a row lacks is NaN, or −1 for a text."""

    def __init__(self) -> None:
        self._rows = 0
        self._values: dict[str, tuple[list[int], list[Any]]] = {}  # rows that have the fact, and its values

    def add(self, facts: dict[str, Any]) -> int:
        """The number of the new row."""
        for name, value in facts.items():
            rows, values = self._values.setdefault(name, ([], []))
            rows.append(self._rows)
            values.append(value)
        self._rows += 1
        return self._rows - 1

    def finish(self) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
        """What the header says of each fact, and its column, a value a row."""
        described: list[dict[str, Any]] = []
        columns: dict[str, np.ndarray] = {}
        for number, (name, held) in enumerate(self._values.items()):
            column = f"fact {number}"
            words, columns[column] = self._column(*held)
            shown, unit = _SHOWN.get(name, name), _UNITS.get(name, "")
            described.append({"name": shown, "unit": unit, "column": column, "words": words})
        return described, columns

    def _column(self, rows: list[int], values: list[Any]) -> tuple[list[str] | None, np.ndarray]:
        if all(type(v) in (int, float) for v in values):
            numbers = np.full(self._rows, np.nan)
            numbers[rows] = values
            return None, numbers
        words: dict[str, int] = {}
        texts: dict[Any, str] = {}
        codes = np.full(self._rows, -1, np.int32)
        for row, value in zip(rows, values, strict=True):
            key = value if isinstance(value, str) else repr(value)
            if key not in texts:
                texts[key] = _text(value)
            codes[row] = words.setdefault(texts[key], len(words))
        return list(words), codes


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " × ".join(map(str, value))
    if isinstance(value, dict):
        return clean(", ".join(f"{group}: {origin}" for group, origin in value.items()), _LONGEST)
    return "yes" if value is True else clean(str(value), _LONGEST)
