"""A metric over the saved records of baselines, and where it made a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from perfkit.errors import InputError
from perfkit.statistics.series import change_points


class LevelChange(msgspec.Struct, frozen=True):
    """A change of a line's level: the index of the first value of the new level, its time, and both levels."""

    index: int
    when: str
    before: float
    after: float


class HistoryLine(msgspec.Struct, kw_only=True):
    """One side of one baseline: values in base units with their times, the oldest first, and its steps."""

    name: str
    when: list[str]
    values: list[float]
    steps: list[LevelChange]
    machines: int = 1  # different ones among the records


Records = Sequence[tuple[str, Mapping[str, Mapping[str, float]], str]]


def lines(baselines: Sequence[tuple[str, Records]], metric: str) -> list[HistoryLine]:
    """A line for each side of each baseline; `baselines` are names with their records: when, metrics by side, machine.

    Raises `InputError` where no record knows the metric.
    """
    found = []
    for name, records in baselines:
        sides = dict.fromkeys(side for _, metrics, _ in records for side in metrics)
        for side in sides:
            known = [(when, m[side][metric], machine) for when, m, machine in records if metric in m.get(side, {})]
            if known:
                found.append(_line(name if len(sides) == 1 else f"{name}:{side}", known))
    if not found:
        sides_of_all = [side for _, records in baselines for _, metrics, _ in records for side in metrics.values()]
        names = dict.fromkeys(known for side in sides_of_all for known in side)
        raise InputError(f"No record has a metric {metric!r}.", f"They have: {', '.join(names) or 'none'}.")
    return found


def _line(name: str, known: Sequence[tuple[str, float, str]]) -> HistoryLine:
    when, values, machines = ([one[i] for one in known] for i in range(3))
    numbers = [float(v) for v in values]  # type: ignore[arg-type]
    edges = [0, *change_points(numbers), len(numbers)]
    levels = [float(np.median(numbers[a:b])) for a, b in pairwise(edges)]
    steps = [
        LevelChange(at, str(when[at]), before, after)
        for at, before, after in zip(edges[1:-1], levels[:-1], levels[1:], strict=True)
    ]
    return HistoryLine(
        name=name, when=[str(w) for w in when], values=numbers, steps=steps, machines=len({*machines} - {""}) or 1
    )
