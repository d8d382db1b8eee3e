"""The logical tree (step / pass / layer / operator) of several sides, side by side, and which kernels became which.

Lines are those of `perfkit.tree.places`: a fused kernel's time, work and bytes are divided among what it serves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from perfkit.analysis.report.aggregate import known_sum
from perfkit.compare.results import Exchange, SideTime, TreeLine
from perfkit.tree import nodes
from perfkit.tree.places import NOT_PLACED, Places, places_of

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.analysis.roofline.roof import Judged, Reals

OUTSIDE = "outside the layers"
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def placed(frame: pd.DataFrame, judged: Judged, steps: int) -> pd.DataFrame:
    """One line a kernel, place and logical operator, amounts a step; NaN where unknown.

    Columns: `pass`, `layer`, `module`, `operator` as in `Places.lines`, `kernel`, `time`, `count`, `flop`, `bytes`,
    `roof`, `judged` (time), `fused` (time), `by`, and `whole`: the calls of the kernel.
    """
    found = places_of(frame, ("short_name", "name"))
    known = judged.judged
    amounts = [judged.time, np.ones(len(frame)), judged.flop, judged.bytes, np.where(known, judged.roof, np.nan),
               np.where(known, judged.time, 0.0)]  # fmt: skip
    sums = np.stack([_sums(found, values) for values in amounts], axis=1) / max(steps, 1)
    kernel = frame["short_name"].fillna(frame["name"]).to_numpy(object)[found.first]
    of = found.lines["kind"].to_numpy(np.int64)
    lines = found.lines.rename(columns={"placed_by": "by"}).assign(kernel=kernel[of], whole=sums[of, 1])
    lines[["time", "count", "flop", "bytes", "roof", "judged"]] = found.of_lines(sums)
    lines["fused"] = lines["time"].where(lines["fused"], 0.0)
    return lines


def _sums(found: Places, values: Reals) -> Reals:
    """Σ of the values of each kind's rows that are known; NaN where none is."""
    known = np.isfinite(values)
    count = np.bincount(found.kind[known], minlength=found.kinds)
    sums = np.bincount(found.kind[known], weights=values[known], minlength=found.kinds)
    return np.where(count > 0, sums, np.nan)


def evidence(lines: pd.DataFrame) -> dict[str, float]:
    """How the kernel time was placed → share of it, the largest first; what has no pass is under `NOT_PLACED`."""
    by = lines["by"].where(lines["pass"] != NOT_PLACED, NOT_PLACED)
    sums = lines["time"].groupby(by).sum().sort_values(ascending=False)
    return {str(name): float(v / sums.sum()) for name, v in sums.items()} if sums.sum() > 0 else {}


_AMOUNTS = ("time", "count", "flop", "bytes", "roof", "judged", "fused")


def tree(sides: Sequence[pd.DataFrame]) -> list[TreeLine]:
    """The lines of the tree in the order of reading (`perfkit.tree.nodes.by_layer`)."""
    root = nodes.by_layer([(lines, _matrix(lines)) for lines in sides], _AMOUNTS.index("time"))
    if root is None:
        return []
    return [
        TreeLine(
            name=_name(node.key), level=len(node.key), cells=[None if a is None else _cell(a) for a in node.amounts]
        )
        for node in root.walk()
    ]


def _matrix(lines: pd.DataFrame) -> Reals:
    """Return the amounts of the lines, unknown ones as 0, then the time of the known ones."""
    values = lines[list(_AMOUNTS)].to_numpy(float)
    amounts = np.nan_to_num(values)
    return np.concatenate([amounts, np.isfinite(values) * amounts[:, :1]], axis=1)


def _cell(amounts: Reals) -> SideTime:
    sums, known = np.split(amounts, 2)
    line, ns = dict(zip(_AMOUNTS, sums.tolist(), strict=True)), dict(zip(_AMOUNTS, known.tolist(), strict=True))
    time = line["time"]
    return SideTime(
        time_ns=time,
        launches=line["count"],
        flop=known_sum(line["flop"], ns["flop"], time),
        flop_known=ns["flop"] / time if time else 0.0,
        bytes=known_sum(line["bytes"], ns["bytes"], time),
        bytes_known=ns["bytes"] / time if time else 0.0,
        efficiency=line["roof"] / line["judged"] if ns["roof"] and line["judged"] else None,
        fused=line["fused"] / time if time else 0.0,
    )


def _name(key: nodes.Key) -> str:
    if not key:
        return "step"
    if isinstance(key[-1], int):
        return OUTSIDE if key[-1] == nodes.NO_LAYER else f"layer {key[-1]}"
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
        if sorted(one.get(key, ([], 0.0))[0]) != sorted(other.get(key, ([], 0.0))[0])  # whatever their order by time
    ]
    return sorted(found, key=lambda e: -abs(e.second_ns - e.first_ns))


def without_numbers(path: str) -> str:
    """A module's path with `*` for the numbers of repeated layers."""
    return _NUMBER.sub("*", path)


def _parts(lines: pd.DataFrame) -> dict[tuple[str, str, str], tuple[list[str], float]]:
    """Part → its kernels as `name ×calls a step`, most time first, and their time.

    A kernel that serves other parts too is counted in each, and marked.
    """
    module = lines["module"].fillna("").map(without_numbers)
    shared = lines["fused"] > 0
    operator = lines["operator"].fillna(nodes.NO_OPERATOR)
    keyed = lines.assign(module=module, operator=operator, shared=shared)
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
