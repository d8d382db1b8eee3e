"""The logical tree (step / pass / layer / operator) of several sides, side by side, and which kernels became which.

Rows are placed by `perfkit.tree.places`: a fused kernel's time, work and bytes are divided among what it serves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from perfkit.analysis.comparison import Cell, Exchange, TreeLine
from perfkit.tree.places import NOT_PLACED, places

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.analysis.roofline import Judged

PASSES = ("encoder", "forward", "classifier", "backward", "optimizer")
OUTSIDE, NO_OPERATOR = "outside the layers", "no operator"
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def placed(frame: pd.DataFrame, judged: Judged, steps: int) -> pd.DataFrame:
    """One line a row and logical operator, amounts a step; NaN where unknown.

    Columns: `pass`, `layer` (−1 for none), `module`, `operator`, `kernel`, `time`, `count`, `flop`, `bytes`, `roof`,
    `judged` (time), `fused` (time), `by`, and `whole`: 1 over the steps.
    """
    import pandas as pd

    found = places(frame)
    row, share = found["row"].to_numpy(np.int64), found["share"].to_numpy(float) / max(steps, 1)
    known = judged.judged
    names = frame["short_name"].fillna(frame["name"]).to_numpy(object)
    time = judged.time[row] * share
    return pd.DataFrame(
        {
            "pass": found["pass"].astype(object).fillna(NOT_PLACED),
            "layer": found["layer"].fillna(-1).astype("int64"),
            "module": found["module"].astype(object).fillna(""),
            "operator": found["operator"].astype(object).fillna(NO_OPERATOR),
            "by": found["placed_by"].astype(object).fillna("none"),
            "kernel": names[row],
            "time": time,
            "count": share,
            "flop": judged.flop[row] * share,
            "bytes": judged.bytes[row] * share,
            "roof": np.where(known, judged.roof, np.nan)[row] * share,
            "judged": np.where(known, judged.time, 0.0)[row] * share,
            "fused": time * found["fused"].to_numpy(bool),
            "whole": 1.0 / max(steps, 1),
        }
    )


def evidence(lines: pd.DataFrame) -> dict[str, float]:
    """How the kernel time was placed → share of it, the largest first; what has no pass is under `NOT_PLACED`."""
    by = lines["by"].where(lines["pass"] != NOT_PLACED, NOT_PLACED)
    sums = lines["time"].groupby(by).sum().sort_values(ascending=False)
    return {str(name): float(v / sums.sum()) for name, v in sums.items()} if sums.sum() > 0 else {}


def tree(sides: Sequence[pd.DataFrame]) -> list[TreeLine]:
    """The lines of the tree in the order of reading: passes in their order, layers by number, operators by time."""
    keys: tuple[list[str], ...] = ([], ["pass"], ["pass", "layer"], ["pass", "layer", "operator"])
    cells: dict[tuple[object, ...], list[Cell | None]] = {}
    for place, lines in enumerate(sides):
        for by in keys:
            for key, cell in _cells(lines, by):
                cells.setdefault(key, [None] * len(sides))[place] = cell
    ordered = sorted(cells, key=lambda key: _order(key, cells))
    lines = []
    for key in ordered:
        shallow = len(key) > 2 and _idle(key[:2], cells)  # its layer is no level here
        if not _idle(key, cells):
            lines.append(TreeLine(name=_name(key), level=len(key) - shallow, cells=cells[key]))
    return lines


def _cells(lines: pd.DataFrame, by: list[str]) -> list[tuple[tuple[object, ...], Cell]]:
    names = ["time", "count", "flop", "bytes", "roof", "judged", "fused"]
    if not by:
        return [((), _cell(lines[names].sum(min_count=1)))] if len(lines) else []
    sums = lines.groupby(by, sort=False)[names].sum(min_count=1)
    found = []
    for key, line in sums.iterrows():
        found.append((tuple(key) if isinstance(key, tuple) else (key,), _cell(line)))
    return found


def _cell(line: pd.Series) -> Cell:
    known = {name: float(value) if value == value else None for name, value in line.items()}
    roof, judged = known["roof"], known["judged"]
    return Cell(
        time_ns=known["time"] or 0.0,
        launches=known["count"] or 0.0,
        flop=known["flop"],
        bytes=known["bytes"],
        efficiency=roof / judged if roof is not None and judged else None,
        fused=(known["fused"] or 0.0) / known["time"] if known["time"] else 0.0,
    )


def _order(key: tuple[object, ...], cells: dict[tuple[object, ...], list[Cell | None]]) -> tuple[object, ...]:
    """Parents before children; siblings as `tree` says."""
    if not key:
        return ()
    name = str(key[0])
    parts: list[object] = [PASSES.index(name) if name in PASSES else len(PASSES) + (name == NOT_PLACED), name]
    if len(key) > 1:
        parts.append(key[1])
    if len(key) > 2:
        parts += [-sum(c.time_ns for c in cells[key] if c), str(key[2])]
    return tuple(parts)


def _idle(key: tuple[object, ...], cells: dict[tuple[object, ...], list[Cell | None]]) -> bool:
    """Whether a level says nothing: everything of its parent is outside the layers."""
    return len(key) == 2 and key[1] == -1 and not any(len(k) == 2 and k[0] == key[0] and k != key for k in cells)


def _name(key: tuple[object, ...]) -> str:
    if not key:
        return "step"
    if len(key) == 2:
        return OUTSIDE if key[1] == -1 else f"layer {key[1]}"
    return str(key[-1])


def exchanges(first: pd.DataFrame, second: pd.DataFrame) -> list[Exchange]:
    """Which kernels serve each part of the model, repeated layers together; parts with the same kernels on both sides
    are left out. The largest difference in time first."""
    one, other = _parts(first), _parts(second)
    found = [
        Exchange(
            pass_=key[0],
            module=key[1],
            operator=key[2],
            first=one.get(key, ([], 0.0))[0],
            second=other.get(key, ([], 0.0))[0],
            first_ns=one.get(key, ([], 0.0))[1],
            second_ns=other.get(key, ([], 0.0))[1],
        )
        for key in dict.fromkeys([*one, *other])
        if one.get(key, ([], 0.0))[0] != other.get(key, ([], 0.0))[0]
    ]
    return sorted(found, key=lambda e: -abs(e.second_ns - e.first_ns))


def _parts(lines: pd.DataFrame) -> dict[tuple[str, str, str], tuple[list[str], float]]:
    """Part → its kernels as `name ×calls a step`, most time first, and their time.

    A kernel that serves other parts too is counted in each, and marked.
    """
    module = lines["module"].map({path: _NUMBER.sub("*", path) for path in lines["module"].unique()})
    shared = lines["fused"] > 0
    keyed = lines.assign(module=module, shared=shared)
    found: dict[tuple[str, str, str], tuple[list[str], float]] = {}
    for key, part in keyed.groupby(["pass", "module", "operator"], sort=False):
        sums = part.groupby("kernel").agg({"time": "sum", "whole": "sum", "shared": "any"})
        sums = sums.sort_values("time", ascending=False)
        names = [
            f"{name} ×{count:.3g}{' (part)' if fused else ''}"
            for name, count, fused in zip(sums.index, sums["whole"], sums["shared"], strict=True)
        ]
        found[tuple(map(str, key))] = names, float(part["time"].sum())  # type: ignore[index]
    return found
