"""Shapes by letters: `B T 3C` says three dimensions, the last three times what C is elsewhere in the call.

Kernels read memory by the sizes that they are given, so every call's shapes are matched against the legend first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Known = dict[str, int | tuple[int, ...]]
_TERM = re.compile(r"(\d*)([A-Za-z]+)")


def match(legend: str, shape: Sequence[int], known: Known) -> bool:
    """Return whether `shape` fits `legend`. The letters met are entered into `known`, and must agree with its values.

    A term is a letter or word (`C`, `NH`), with a factor (`3C`), or a number. A leading `...` takes any dimensions; it
    is one thing too, the same wherever it stands.
    """
    terms = legend.split()
    if terms[:1] == ["..."]:
        lead = len(shape) - (len(terms) - 1)
        if lead < 0 or known.setdefault("...", tuple(shape[:lead])) != tuple(shape[:lead]):
            return False
        terms, shape = terms[1:], shape[lead:]
    return len(terms) == len(shape) and all(_fits(t, s, known) for t, s in zip(terms, shape, strict=True))


def _fits(term: str, size: int, known: Known) -> bool:
    if term.isdigit():
        return size == int(term)
    parts = _TERM.fullmatch(term)
    assert parts is not None, f"not a dimension: {term}"
    factor = int(parts[1] or 1)
    return size % factor == 0 and known.setdefault(parts[2], size // factor) == size // factor


def mismatch(legends: Mapping[str, str], shapes: Mapping[str, Sequence[int]]) -> str | None:
    """One sentence about the first tensor in `shapes` that contradicts its legend or the tensors before it, or None."""
    known: Known = {}
    for name, shape in shapes.items():
        if not match(legends[name], shape, known):
            held = ", ".join(f"{k} = {v}" for k, v in known.items() if k != "...")
            given = f" with {held}" if held else ""
            return f"{name} has shape {tuple(shape)} where ({legends[name]}) is needed{given}"
    return None


def letters_of(legends: Mapping[str, str], shapes: Mapping[str, Sequence[int]]) -> Known:
    """Return the values of the letters in `shapes`, which fit their legends."""
    known: Known = {}
    for name, shape in shapes.items():
        match(legends[name], shape, known)
    return known


def sized(legend: str, known: Mapping[str, int | tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that `legend` has with the letters `known`. Raises `KeyError` for a letter that is not."""
    found: list[int] = []
    for term in legend.split():
        parts = _TERM.fullmatch(term)
        size = known["..."] if term == "..." else int(term) if parts is None else known[parts[2]]
        if isinstance(size, tuple):
            found += size
        else:
            found.append(int(parts[1] or 1) * size if parts else size)
    return tuple(found)


def rows_and_columns(x: Any, *_: Any) -> tuple[int, int]:
    """N, M of a tensor (…, M) of N rows, the first argument of a call: what a kernel over rows takes as its sizes."""
    columns = x.shape[-1]
    return x.numel() // max(columns, 1), columns
