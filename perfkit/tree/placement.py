"""The sources' evidence on the places of rows, and the one order in which it holds.

    source       what it is                                                      `placed_by`
    table        what a kernel table holds already                               any
    events       ranges around a kernel, module hooks, and autograd's links      range, autograd
    capture      what a CUDA graph was captured from, of what its replays run    range, autograd
    model        the model's own work outside the graphs of a compiler           range, autograd
    line         lines of a generated program                                    symbol, parameter, declared
    call site    calls that a compiler reported                                  provenance
    alignment    the position between kernels of a reference that are certain    alignment

Each says what it knows of a row and nothing else. Later ones hold over earlier ones, column by column; what a fused
kernel serves belongs to its place, so that a source which places a row also says what the row serves, or that it serves
nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from perfkit.tree.places import Integers

SOURCES = TABLE, EVENTS, CAPTURE, MODEL, LINE, CALL_SITE, ALIGNMENT = (
    "table", "events", "capture", "model", "line", "call site", "alignment",
)  # fmt: skip
RANGE, SUFFIX = "range", "range suffix"  # the second follows the first in the end
EVIDENCE, SERVES = "placed_by", "serves"


class WordColumn(Protocol):
    """A column of words: the distinct `words`, and for each row the place of its word in them, −1 for none."""

    @property
    def words(self) -> Sequence[str]:
        """The distinct words."""

    @property
    def code(self) -> Integers:
        """The place of each row's word in `words`, −1 for none."""


@dataclass(frozen=True)
class Words:
    """A column of words."""

    words: Sequence[str]
    code: Integers

    @classmethod
    def of(cls, values: Sequence[str | None], which: Integers) -> Words:
        """The word of `values` that each row has by `which`, −1 for none; equal words become one."""
        places: dict[str, int] = {}
        code = np.array([-1 if v is None else places.setdefault(v, len(places)) for v in values] + [-1], np.int64)
        return cls(list(places), code[which])


@dataclass(frozen=True)
class Placement:
    """The evidence of one of `SOURCES`: place columns of the kernel table by name, −1 where it has none.

    Raises `ValueError` for an unknown source.
    """

    source: str
    columns: Mapping[str, WordColumn]

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ValueError(f"{self.source!r} is not a source of places")


def settled(placements: Sequence[Placement]) -> dict[str, WordColumn]:
    """The place columns by what all placements say, in the order of `SOURCES`, each column made once."""
    ordered = sorted(placements, key=lambda one: SOURCES.index(one.source))
    names = dict.fromkeys(name for one in ordered for name in one.columns)
    found = {name: _settled(name, ordered) for name in names}
    if SUFFIX in found:
        suffix = found.pop(SUFFIX)
        found[RANGE] = _joined(found[RANGE], suffix)
    return found


def _settled(name: str, ordered: Sequence[Placement]) -> WordColumn:
    found: WordColumn | None = None
    for one in ordered:
        own = one.columns.get(name)
        if own is None:
            continue
        says = own.code >= 0
        if name == SERVES and EVIDENCE in one.columns:
            says = says | (one.columns[EVIDENCE].code >= 0)
        found = own if found is None else _over(found, own, says)
    assert found is not None, "a column that no source has"
    return found


def _over(below: WordColumn, above: WordColumn, says: np.ndarray) -> WordColumn:
    """`below`, with the words of `above` where it `says` something."""
    if not says.any():
        return below
    known = {word: i for i, word in enumerate(below.words)}
    there = np.array([known.setdefault(word, len(known)) for word in above.words] + [-1], dtype=np.int64)
    return Words(list(known), np.where(says, there[above.code], below.code))


def _joined(paths: WordColumn, ends: WordColumn) -> WordColumn:
    """Paths, followed by the rows' ends."""
    pairs, which = distinct_pairs(paths.code, ends.code)
    words = [
        "/".join((*([paths.words[path]] if path >= 0 else []), *([ends.words[end]] if end >= 0 else []))) or None
        for path, end in pairs
    ]
    return Words.of(words, which)


def distinct_pairs(one: Integers, other: Integers) -> tuple[list[tuple[int, int]], Integers]:
    """The pairs of two codes (−1 and up) that occur together, and for each row which of them it has."""
    width = int(other.max(initial=-1)) + 2
    found, which = np.unique((one.astype(np.int64) + 1) * width + other + 1, return_inverse=True)
    return [(pair // width - 1, pair % width - 1) for pair in found.tolist()], which.reshape(-1)
