"""Changes between the two sides of a comparison: phases of serving, source lines, lines inside kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from perfkit import units
from perfkit.compare.results import CodeChange, JudgedMetric, Pair, PartChange, PhasePair
from perfkit.render.cells import Cell, PageColumn, Table, clean, column_scale, figures, table, words
from perfkit.statistics.verdicts import BETTER, UNKNOWN, WORSE, Judgement

_Value = TypeVar("_Value")
_TONES = {BETTER: "good", WORSE: "bad", UNKNOWN: "fair"}
NOTE = (
    "Medians over iterations; a verdict is on their whole distributions, all lines corrected together. A token is one "
    "that is read or fed in. Kernels are counted, so that no allowance widens their interval."
)
_CHANGED = 0.01  # of the host's time: a line that changed by less is not listed


def phases_table(phases: Sequence[PhasePair], about: str) -> Table:
    """The metrics of each phase, with their verdicts."""
    rows = [(pair, tested) for pair in phases for tested in pair.tested]
    judged = [tested.judgement for _, tested in rows]
    return table(
        f"Serving, by phase{about}",
        words("phase", [pair.phase for pair, _ in rows], name=True),
        words("metric", [tested.metric for _, tested in rows]),
        words("iterations", [_both(pair.iterations, str) for pair, _ in rows], priority=2),
        words("tokens each", [_both(pair.tokens, _number) for pair, _ in rows], priority=1),
        PageColumn("first", tuple(Cell(_value(tested.first, tested)) for _, tested in rows)),
        PageColumn("second", tuple(Cell(_value(tested.second, tested)) for _, tested in rows)),
        PageColumn("change", tuple(Cell(change(j.ratio)) for j in judged)),
        PageColumn("95 % CI", tuple(Cell(span(j.low, j.high), "dim") for j in judged), priority=1),
        verdict_column(judged),
        words("", [j.why for j in judged], ["dim"] * len(rows), priority=4, least=12),
        notes=[NOTE, *(pair.unlike for pair in phases if pair.unlike)],
    )


def _both(values: Sequence[_Value], text: Callable[[_Value], str]) -> str:
    one, other = (text(value) for value in values)
    return one if one == other else f"{one}, {other}"


def _number(value: float | None) -> str:
    return units.ABSENT if value is None else f"{value:,.4g}"


def _value(value: float | None, tested: JudgedMetric) -> str:
    return _number(value) if tested.unit == "count" else units.text(value, tested.unit)


def change(ratio: float | None) -> str:
    """A ratio to the first side as text: +3.1%."""
    return units.ABSENT if ratio is None else f"{ratio - 1:+.1%}"


def span(low: float | None, high: float | None) -> str:
    """An interval of such ratios as text."""
    return units.ABSENT if low is None or high is None else f"{low - 1:+.1%} to {high - 1:+.1%}"


def verdict_column(judged: Sequence[Judgement | None]) -> PageColumn:
    """The verdicts, empty where nothing was judged."""
    cells = (Cell(one.verdict, _TONES.get(one.verdict, "")) if one else Cell("") for one in judged)
    return PageColumn("verdict", tuple(cells), numeric=False)


def _times(pair: Pair, rows: Sequence[PartChange | CodeChange]) -> tuple[PageColumn, PageColumn]:
    """The time of each row on both sides, in one unit."""
    scale = column_scale([value for row in rows for value in (row.first_ns, row.second_ns)], "ns")
    return (
        figures(clean(pair.first, 24), [row.first_ns for row in rows], "ns", scale=scale),
        figures(clean(pair.second, 24), [row.second_ns for row in rows], "ns", scale=scale),
    )


def changed_lines(pair: Pair, about: str = "", limit: int | None = None) -> Table | None:
    """The lines whose time on the host changed between two sides by `_CHANGED` of all; None where none is known."""
    whole = max(sum(line.first_ns or 0.0 for line in pair.lines), sum(line.second_ns or 0.0 for line in pair.lines))
    rows = [line for line in pair.lines if abs(line.difference_ns) >= _CHANGED * whole > 0][:limit]
    if not rows:
        return None
    return table(
        f"Lines that changed{about}",
        words("line", [row.key for row in rows], name=True),
        *_times(pair, rows),
        words("code", [row.shapes for row in rows], priority=2, least=20),
        notes=[
            "The host's time of the profiled steps; a line is known by its text. Whether a change is more than noise, "
            "this does not say."
        ],
    )


def changed_code(pair: Pair, about: str = "", limit: int | None = None) -> Table | None:
    """The instructions or lines inside kernels that changed between two reports of Nsight Compute; None without any."""
    rows = pair.code[:limit]
    if not rows:
        return None
    return table(
        f"Inside kernels{about}",
        words("kernel", [row.kernel for row in rows], name=True),
        words("at", [row.where for row in rows]),
        *_times(pair, rows),
        words("code", [row.code for row in rows], priority=2, least=20),
        notes=[
            "The share of the samples times the duration of the longest launch. Two profiles of the same program "
            "differ by some per cent, too."
        ],
    )
