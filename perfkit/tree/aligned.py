"""Places by alignment: kernels without marks, placed by those of a reference run of the same step.

Anchors are kernels whose identity is certain: matrix products by their three dimensions, attention, embeddings. The
sequence of anchors of a step is aligned with that of the reference (`perfkit.tree.sequences`: only pairs that every
longest common subsequence has), and a paired anchor has its partner's place. What lies between two paired anchors
belongs to what lies between their partners:

- a product with the dimensions of one place's, or else a row whose operator has one place there, has that place;
- one row left over serves everything that is left over there, in shares by the bytes that it reads and writes in the
  reference (`perfkit.tree.shares.split`);
- several have what the places left over have in common: pass, layer, and the path of the module around them.

Before the first and after the last pair the same holds up to the step's ends. Where nothing is in common, rows stay
not placed. Rows that have a module keep their place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perfkit.profile_names import FORWARD, FORWARD_PARTS
from perfkit.table import COLUMNS, INTEGER
from perfkit.tree import shares
from perfkit.tree.names import logical_name
from perfkit.tree.placement import ALIGNMENT, TABLE, Placement, Words, settled
from perfkit.tree.places import distinct
from perfkit.tree.sequences import MOST_CELLS, Booleans, Integers, align

if TYPE_CHECKING:
    import pandas as pd

_ANCHORS = ("matmul", "attention", "embedding")
_LOOKED_AT = ("family", "shapes", "name", "operator", "pass", "layer", "module")  # of a row that is placed
_FILLED = ("pass", "layer", "module", "operator", "serves", "placed_by")
_TENSOR = re.compile(r"\b\w+\[([\d×]*)\]")


# Pass, layer, module and operator, each None where it is unknown.
_Place = tuple[str | None, int | None, str | None, str | None]
_Served = list[tuple[_Place, float]]  # with shares that sum to 1


class _AlignedRow(NamedTuple):
    """The properties of a row that alignment compares."""

    at: int  # its position in its step
    anchor: str  # the family of an anchor, "" for another row
    dimensions: tuple[int, ...]  # of an anchor, () where unknown
    names: tuple[str, ...]  # logical names of the row's operator and of its own
    bytes: float | None
    place: _Place


def align_places(frame: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """`frame` (of a kernel table) with places for the rows that have no module, from `reference`, whose rows have.

    Both hold whole steps; the first of `reference` represents all. Steps with the same sequence of rows are aligned
    once. Returns `frame` itself where there is nothing to do.
    """
    lost = frame["module"].isna().to_numpy()
    if not lost.any() or not len(reference):
        return frame
    model = _rows(reference.iloc[_steps(reference)[0]])
    kind = distinct(frame, _LOOKED_AT)[1]
    served: list[_Served] = []
    by_sequence: dict[bytes, Integers] = {}
    which = np.full(len(frame), -1, np.int64)
    for index in _steps(frame):
        sequence = kind[index].tobytes()
        if sequence not in by_sequence:
            by_sequence[sequence] = _aligned(_rows(frame.iloc[index]), model, served)
        which[index] = by_sequence[sequence]
    return _filled(frame, np.where(lost, which, -1), served)


def _aligned(rows: list[_AlignedRow], model: list[_AlignedRow], served: list[_Served]) -> Integers:
    """For each of `rows` the place in `served` of what it serves, which is appended there; −1 where that is unknown."""
    found = np.full(len(rows), -1, np.int64)
    for part in _chunks(rows, model):
        for at, one in _placed(part, model).items():
            found[at] = len(served)
            served.append(one)
    return found


def _filled(frame: pd.DataFrame, which: Integers, served: Sequence[_Served]) -> pd.DataFrame:
    """A copy of `frame` in which each row has the place that `which` names in `served`; −1 for its own."""
    import pandas as pd

    lines = [_columns_of(one) for one in served]
    said = {name: Words.of([line[i] for line in lines], which) for i, name in enumerate(_FILLED)}
    found = settled([Placement(TABLE, {n: _coded(frame[n]) for n in _FILLED}), Placement(ALIGNMENT, said)])
    result = frame.copy()
    for name, column in found.items():
        dtype = next(c.dtype for c in COLUMNS if c.name == name)
        words = [int(w) for w in column.words] if dtype == INTEGER else list(column.words)
        values = np.array([*words, None], dtype=object)[column.code]
        result[name] = pd.Series(values, index=frame.index, dtype=object).astype(dtype)
    return result


def _coded(column: pd.Series) -> Words:
    code, words = column.factorize()
    return Words([str(word) for word in words], code.astype(np.int64))


def _columns_of(served: _Served) -> tuple[str | None, ...]:
    """Return the values of the columns `_FILLED` for a row that serves this."""
    parts = [shares.OperatorShare(p[0] or "", p[2] or "", p[3] or "", share) for p, share in served]
    main = parts.index(shares.main(parts))
    pass_, layer, module, operator = served[main][0]
    return pass_, None if layer is None else str(layer), module, operator, shares.text(parts), ALIGNMENT


def _steps(frame: pd.DataFrame) -> list[Integers]:
    """The positions of the rows of each step, in order of time; of all rows where no step is marked."""
    start = frame["start_ns"].fillna(0).to_numpy(float)
    if not frame["step"].notna().any():
        return [np.argsort(start, kind="stable")]
    marked = np.flatnonzero(frame["step"].notna().to_numpy())
    step = frame["step"].to_numpy(float, na_value=np.nan)[marked]
    order = np.lexsort((start[marked], step))
    edges = np.flatnonzero(np.diff(step[order])) + 1
    return np.split(marked[order], edges)


def _rows(part: pd.DataFrame) -> list[_AlignedRow]:
    """The rows of one step, in order."""

    def column(name: str) -> list[Any]:
        return part[name].astype(object).where(part[name].notna(), None).tolist()

    families = [str(f) if f in _ANCHORS else "" for f in column("family")]
    moved = (part["bytes_read"] + part["bytes_written"]).to_numpy(float)
    return [
        _AlignedRow(
            at, family, dimensions(shapes or "", family) if family else (),
            tuple(dict.fromkeys(logical_name(n) for n in (operator, name) if n)),
            float(b) if b == b else None, (pass_, None if layer is None else int(layer), module, operator),
        )
        for at, (family, shapes, name, operator, pass_, layer, module, b) in enumerate(
            zip(families, *map(column, ("shapes", "name", "operator", "pass", "layer", "module")), moved.tolist(),
                strict=True)
        )
    ]  # fmt: skip


def dimensions(shapes: str, family: str) -> tuple[int, ...]:
    """Return the identity of an anchor: for a product the batch, the outer dimensions in order of size, and the inner
    one.

    A product and its transpose are the same, for backends differ in which of them they compute. () where `shapes` do
    not know.
    """
    tensors = [tuple(int(n) for n in t.split("×") if n) for t in _TENSOR.findall(shapes)]
    matrices = [t for t in tensors if len(t) > 1]
    if family != "matmul":
        return tuple(sorted(n for t in tensors[:1] for n in t))
    if len(matrices) > 2 and matrices[0][-1] != matrices[1][-2]:
        matrices = matrices[1:]  # what is added comes first
    if len(matrices) < 2 or matrices[0][-1] != matrices[1][-2]:
        return ()
    a, b = matrices[:2]
    batch = int(np.prod(a[:-2])) if len(b) > 2 else 1
    rows = a[-2] if len(b) > 2 else int(np.prod(a[:-1]))
    return batch, *sorted((rows, b[-1])), a[-1]


def _chunks(rows: list[_AlignedRow], model: list[_AlignedRow]) -> list[list[_AlignedRow]]:
    """`rows` in pieces of one step each: where no step is marked, and there are the anchors of several."""
    anchors = [i for i, row in enumerate(rows) if row.anchor]
    expected = sum(bool(row.anchor) for row in model)
    if not expected or len(anchors) % expected or len(anchors) == expected:
        return [rows]
    starts = [0, *(anchors[i] for i in range(expected, len(anchors), expected)), len(rows)]
    return [rows[a:b] for a, b in pairwise(starts)]


def _placed(rows: list[_AlignedRow], model: list[_AlignedRow]) -> dict[int, _Served]:
    """Index of each row that can be placed → what it serves."""
    pairs = [(-1, -1), *_pairs(rows, model), (len(rows), len(model))]
    found: dict[int, _Served] = {}
    for (i, r), (next_i, next_r) in pairwise(pairs):
        if i >= 0:
            found[rows[i].at] = [(model[r].place, 1.0)]
        found.update(_between(rows[i + 1 : next_i], model[r + 1 : next_r]))
    return found


def _pairs(rows: list[_AlignedRow], model: list[_AlignedRow]) -> list[tuple[int, int]]:
    ours = [i for i, row in enumerate(rows) if row.anchor]
    theirs = [r for r, row in enumerate(model) if row.anchor]
    if not ours or not theirs or len(ours) * len(theirs) > MOST_CELLS:
        return []

    words: dict[Any, int] = {}
    mine, other = _codes([rows[i] for i in ours], words), _codes([model[r] for r in theirs], words)

    def equal(i: int) -> Booleans:
        unknown = (mine[i] < 0) | (other < 0)  # says nothing
        same: Booleans = ((mine[i] == other) | unknown).all(axis=1)
        return same

    partner = align(len(ours), len(theirs), equal)
    return [(ours[i], theirs[p]) for i, p in enumerate(partner.tolist()) if p >= 0]


def _codes(rows: Sequence[_AlignedRow], words: dict[Any, int]) -> Integers:
    """Family, dimensions and pass of anchors as numbers, (rows, 3); −1 where unknown."""
    told = [(row.anchor, row.dimensions, _pass(row.place[0] or "")) for row in rows]
    return np.array([[words.setdefault(w, len(words)) if w else -1 for w in line] for line in told], dtype=np.int64)


def _same(a: _AlignedRow, b: _AlignedRow) -> bool:
    """Return whether two anchors may be the same; unknown properties decide nothing."""
    if a.anchor != b.anchor or (a.dimensions and b.dimensions and a.dimensions != b.dimensions):
        return False
    return a.place[0] is None or b.place[0] is None or _pass(a.place[0]) == _pass(b.place[0])


def _pass(name: str) -> str:
    return FORWARD if name in FORWARD_PARTS else name


def _between(rows: Sequence[_AlignedRow], model: Sequence[_AlignedRow]) -> dict[int, _Served]:
    """The places of rows between two pairs, from the reference's rows between them."""
    found: dict[int, _Served] = {}
    taken: set[int] = set()
    for row in rows:
        same = [m for m in model if row.dimensions and row.dimensions == m.dimensions and _same(row, m)]
        same = same or [m for m in model if set(m.names) & set(row.names) and _may(row, m)]
        if len({m.place for m in same}) == 1:
            found[row.at] = [(same[0].place, 1.0)]
            taken.update(m.at for m in same)
    left = [row for row in rows if row.at not in found]
    for row in left:
        open_ = [m for m in model if m.at not in taken and _may(row, m)] or [m for m in model if _may(row, m)]
        if len(left) == 1 and open_:
            found[row.at] = _shared(open_)
        elif common := _common([m.place for m in open_]):
            found[row.at] = [(common, 1.0)]
    return found


def _shared(model: Sequence[_AlignedRow]) -> _Served:
    """The places of all of `model`, in shares by their bytes."""
    weights: dict[_Place, float] = {}
    for m in model:
        weights[m.place] = weights.get(m.place, 0.0) + (np.nan if m.bytes is None else m.bytes)
    whole = sum(weights.values())
    if not whole > 0:  # NaN too
        return [(place, 1.0 / len(weights)) for place in weights]
    return [(place, weight / whole) for place, weight in weights.items() if weight]


def _may(row: _AlignedRow, model: _AlignedRow) -> bool:
    """Return whether the known pass of a row is that of the reference's."""
    return row.place[0] is None or model.place[0] is None or _pass(row.place[0]) == _pass(model.place[0])


def _common(places: Sequence[_Place]) -> _Place | None:
    """Return the common part of places; None where not even the pass is."""
    if len({place[0] for place in places}) != 1:
        return None
    passes, layers, modules, operators = (set(column) for column in zip(*places, strict=True))
    paths = [(m or "").split(".") for m in modules]
    depth = next((i for i, words in enumerate(zip(*paths, strict=False)) if len(set(words)) > 1), min(map(len, paths)))
    module = ".".join(paths[0][:depth]) or None
    return _only(passes), _only(layers), module, _only(operators)


def _only(values: set[Any]) -> Any:
    return next(iter(values)) if len(values) == 1 else None
