"""Which parts of the logical tree (step / pass / layer / module / operator) each row of a kernel table serves.

One line per row and member: most rows serve one logical operator; a fused kernel serves several, and its column
`serves` gives each one's share. Operators have one name whichever backend ran them (`perfkit.tree.names`), so
that the lines of two backends can be laid side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfkit.columns import Coded, Frame, Real, Whole, plain, real
from perfkit.numbers import first_rows, numbered
from perfkit.tree import shares
from perfkit.tree.names import parts

if TYPE_CHECKING:
    import pandas as pd

NOT_PLACED = "not placed"
_PLACE = ("pass", "layer", "module", "operator", "placed_by", "serves")
Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Places:
    """The places of the rows of a frame, stored once for all rows that share them.

    `kind` is of each row which of the distinct places it has, `first` of each kind the first row that has it. `lines`
    has a line for each kind and logical operator that it serves, one kind after another: `kind`, `pass`, `layer`
    (Int64), `module`, `operator`, `share` (which sum to 1 over each kind's lines), `fused` (whether the kind has
    several lines), `placed_by`. Where the pass is unknown it is `NOT_PLACED`; what else is unknown is absent.
    """

    kind: Integers
    first: Integers
    lines: pd.DataFrame

    @property
    def kinds(self) -> int:
        """Return the number of distinct places."""
        return len(self.first)

    def of_lines(self, by_kind: Reals) -> Reals:
        """Sums over the rows of each kind, shape (kinds, …), divided among the lines."""
        share = self.lines["share"].to_numpy(float)
        divided: Reals = (by_kind[self.lines["kind"].to_numpy(np.int64)].T * share).T
        return divided

    def in_pass(self, name: str) -> Reals:
        """Return the share of each row that serves the pass `name`."""
        there = (self.lines["pass"] == name).to_numpy(bool)
        by_kind = np.zeros(self.kinds)
        np.add.at(by_kind, self.lines["kind"].to_numpy(np.int64)[there], self.lines["share"].to_numpy(float)[there])
        of_rows: Reals = by_kind[self.kind]
        return of_rows


def places_of(frame: pd.DataFrame, beside: Sequence[str] = ()) -> Places:
    """The places of the rows of `frame`; rows of one kind have the same values in the columns `beside`, too."""
    kinds, kind, first = distinct(frame, (*_PLACE, *beside))
    texts = {name: _texts(kinds[name]) for name in ("pass", "module", "operator", "placed_by", "serves")}
    own_layer = [None if v is None else int(v) for v in plain(kinds["layer"])]
    layer_of = _layers(texts["module"], own_layer)
    lines: list[tuple[Any, ...]] = []
    for i, layer in enumerate(own_layer):
        pass_, module, operator, by, serves = (texts[name][i] for name in texts)
        served = _members(serves) or _parts(pass_ or "", module or "", operator or "")
        for m in served:
            at = layer_of(m.module) if serves else layer
            place = m.pass_ or NOT_PLACED, at, m.module or None, m.operator or None
            lines.append((i, *place, m.share, len(served) > 1, by or "none"))
    light = isinstance(frame, Frame)
    return Places(kind, first, _light(lines) if light else _in_pandas(lines))  # type: ignore[arg-type]


_LINES = ("kind", "pass", "layer", "module", "operator", "share", "fused", "placed_by")


def _light(lines: list[tuple[Any, ...]]) -> Frame:
    """The lines as columns."""
    of = dict(zip(_LINES, zip(*lines, strict=True), strict=True)) if lines else dict.fromkeys(_LINES, ())
    layer = np.array([-1 if n is None else n for n in of["layer"]], np.int64)
    made: dict[str, Any] = {name: Coded.of(of[name]) for name in ("pass", "module", "operator", "placed_by")}
    made["layer"] = Whole(layer, np.array([n is not None for n in of["layer"]], bool))
    made["share"] = real(of["share"])
    made |= {n: np.array(of[n], t).view(Real) for n, t in (("kind", np.int64), ("fused", bool))}
    return Frame(made, len(lines))


def _in_pandas(lines: list[tuple[Any, ...]]) -> pd.DataFrame:
    """The lines as a data frame."""
    import pandas as pd

    text = dict.fromkeys(("pass", "module", "operator", "placed_by"), "string")
    dtypes = text | {"kind": "int64", "layer": "Int64", "share": "float64", "fused": "bool"}
    return pd.DataFrame(lines, columns=list(_LINES)).astype(dtypes)


def places(frame: pd.DataFrame) -> pd.DataFrame:
    """The places of the rows of `frame`, a kernel table's frame or a part of one, row by row.

    Columns: `row`, the position in `frame` from 0 (not its index), and those of `Places.lines` but `kind`: `pass`,
    `layer`, `module`, `operator`, `share` of the row's time, work and bytes, `fused`, `placed_by`.
    """
    found = places_of(frame)
    row, line = _expanded(np.bincount(found.lines["kind"], minlength=found.kinds), found.kind)
    lines = found.lines.drop(columns="kind").iloc[line].reset_index(drop=True)
    lines.insert(0, "row", row)
    return lines


def distinct(frame: pd.DataFrame, columns: Sequence[str]) -> tuple[pd.DataFrame, Integers, Integers]:
    """The distinct lines of `columns`, which of them each row has, and the first row that has each.

    Thousands of rows share a place.
    """
    code = np.zeros(len(frame), np.int64)
    for name in columns:
        own, words = frame[name].factorize()
        used, code = numbered(code * (len(words) + 1) + own + 1)
    first = first_rows(code, len(used))
    return frame[list(columns)].iloc[first], code, first


def _expanded(counts: Integers, kind: Integers) -> tuple[Integers, Integers]:
    """For each line of the result its row, and its line among those of the distinct places, `counts` a place."""
    begin = np.cumsum(counts) - counts
    number = counts[kind]
    row = np.repeat(np.arange(len(kind)), number)
    behind = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
    return row, begin[kind][row] + behind


def _texts(column: pd.Series) -> list[str | None]:
    return [None if v is None else str(v) for v in plain(column)]


@lru_cache(maxsize=4096)
def _members(text: str | None) -> Sequence[shares.OperatorShare]:
    """Return the members that `text` names; those whose operators turn out to have one name are joined."""
    if not text:
        return ()
    lines = [(part, m.share * part.share) for m in shares.read(text) for part in _parts(m.pass_, m.module, m.operator)]
    return shares.split([part[:3] for part, _ in lines], [share for _, share in lines])


@lru_cache(maxsize=4096)
def _parts(pass_: str, module: str, operator: str) -> Sequence[shares.OperatorShare]:
    """Return what an operator in a place serves: one logical operator, or those that a kernel of perfkit's replaces."""
    return [shares.OperatorShare(pass_, module, name, share) for name, share in parts(operator)]


def _layers(modules: Sequence[str | None], layers: Sequence[int | None]) -> Callable[[str], int | None]:
    """From a module path to the layer's index or None, as the table's rows have it.

    For a path that no row has for its own it follows from theirs: the layer follows the same prefix.
    """
    known = {m: n for m, n in zip(modules, layers, strict=True) if m}
    prefixes: set[str] = set()
    for module, layer in known.items():
        words = module.split(".")
        prefixes |= {".".join(words[:i]) for i, word in enumerate(words) if layer is not None and word == str(layer)}

    def layer_of(module: str) -> int | None:
        words = module.split(".")
        behind = (w for i, w in enumerate(words) if w.isdigit() and ".".join(words[:i]) in prefixes)
        return known[module] if module in known else next((int(w) for w in behind), None)

    return layer_of
