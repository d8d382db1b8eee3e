"""The cost of each line of a generated program: a Thunder trace, or Inductor's code, with the kernels of its lines.

The table's `range` of a row ends in `generated:LINE` where the line that it ran in is known (for Thunder
`perfkit.profile_names.line_name`, for Inductor the compiler's call sites). A row without a line never gets one by
guessing: it stands among `others`, so that lines and others add up to the step's kernel time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from perfkit.analysis.report import aggregate
from perfkit.analysis.report.rows import in_steps, rows_of
from perfkit.analysis.results import Group
from perfkit.hardware.ceilings import Ceilings
from perfkit.table import KernelTable

if TYPE_CHECKING:
    import pandas as pd

_LINE = re.compile(r"(?:^|/)generated:(\d{1,9})$")
_NO_PASS = "no pass"
_NAMED = 3  # kernels that a line names


class ListedLine(msgspec.Struct, kw_only=True):
    """A line of the program that kernels ran in: `number` from 1, what they cost a step, and what they serve."""

    number: int
    cost: Group
    kernels: list[str]  # short names, the longest first
    places: list[str]  # "backward · transformer.h.0.mlp · gelu", the longest first


class Listing(msgspec.Struct, kw_only=True):
    """The program of one backend as text, the lines that cost something, and the kernels that no line owns.

    `others` are by pass and operator, the longest first. All amounts are per step; costs of `lines` and `others` sum to
    `whole`.
    """

    backend: str
    title: str
    text: list[str]
    lines: list[ListedLine]
    others: list[Group]
    whole: Group
    on_lines_ns: float


def listing(backend: str, title: str, program: str, table: KernelTable, ceilings: Ceilings | None) -> Listing | None:
    """The listing of `program`, the text that the lines of `table` count in; None for a table without rows."""
    frame = in_steps(table)
    if not len(frame):
        return None
    rows = rows_of(frame, ceilings, table)
    text = program.splitlines()
    line = lines_of(frame["range"], len(text))
    labels = np.where(line > 0, line.astype(str), _labels(frame))
    names, codes = np.unique(labels, return_inverse=True)
    costs = {group.key: group for group in aggregate.by_label(rows, codes, names.tolist())}
    places, kernels = _places(frame), frame["short_name"].fillna(frame["name"])
    lines = [
        ListedLine(
            number=number,
            cost=costs.pop(str(number)),
            kernels=_longest(kernels, frame, mine),
            places=_longest(places, frame, mine),
        )
        for number, mine in ((n, np.flatnonzero(line == n).tolist()) for n in np.unique(line[line > 0]).tolist())
    ]
    whole = aggregate.by_label(rows, np.zeros(len(frame), np.int64), ["step"])[0]
    return Listing(
        backend=backend,
        title=title,
        text=text,
        lines=lines,
        others=sorted(costs.values(), key=lambda group: -group.time_ns),
        whole=whole,
        on_lines_ns=sum(one.cost.time_ns for one in lines),
    )


def lines_of(ranges: pd.Series, length: int) -> np.ndarray:
    """The line that each row ran in, by the end of its range; 0 for none, or one that a text of `length` has not."""
    numbers = [int(found[1]) if isinstance(path, str) and (found := _LINE.search(path)) else 0 for path in ranges]
    line = np.array(numbers, dtype=np.int64)
    return np.where(line <= length, line, 0)


def _labels(frame: pd.DataFrame) -> list[str]:
    """Pass and operator of each row, as one text, never a number."""
    operator = frame["operator"].fillna(frame["short_name"]).fillna(frame["name"])
    passes = frame["pass"].astype(object).fillna(_NO_PASS)
    return [f"{p}: {o}" for p, o in zip(passes, operator, strict=True)]


def _places(frame: pd.DataFrame) -> pd.Series:
    """Return the place of each row: pass, module and operator, as far as known."""
    import pandas as pd

    parts = (frame[name].astype(object).where(frame[name].notna(), "") for name in ("pass", "module", "operator"))
    texts = [" · ".join(word for word in words if word) for words in zip(*parts, strict=True)]
    return pd.Series(texts, index=frame.index, dtype=object)


def _longest(values: pd.Series, frame: pd.DataFrame, chosen: Sequence[int]) -> list[str]:
    """The distinct values of the chosen rows, those with the most time first."""
    time: dict[str, float] = {}
    durations = frame["duration_ns"].to_numpy(float)
    words = values.to_numpy(object)
    for row in chosen:
        time[words[row]] = time.get(words[row], 0.0) + durations[row]
    return [word for word in sorted(time, key=lambda w: -time[w]) if word][:_NAMED]
