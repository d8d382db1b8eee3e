"""The column of efficiencies, its marks, and the notes that say what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from perfkit import units
from perfkit.analysis.results import BackendReport, Group
from perfkit.render.cells import Cell, PageColumn, clean, efficiency_tone, figures

BROKEN = "! kernels that are faster than their roof allows: their measurement or the model of their work is broken"
ON_PAPER = "†"
HELPED = 0.1  # of a kernel's time: from here on a note says that a cache held a part of its bytes
_FLAGGED, _NAMED = 6, 3  # groups that a note names, and kernels of each


def efficiencies(rows: Sequence[Group | BackendReport | None], priority: int = 0) -> PageColumn:
    """A column of efficiencies, with † where a datasheet is the roof, and ! where `above_roof` says that one is
    wrong."""
    flagged = [row is not None and row.above_roof for row in rows]
    values = [row.efficiency if row else None for row in rows]
    tones = ["bad" if f else efficiency_tone(v and min(v, 1.0)) for f, v in zip(flagged, values, strict=True)]
    plain = figures("eff.", values, "%", tones, priority=priority)
    marks = [f"{'!' * f}{ON_PAPER if row and row.datasheet else ''}" for row, f in zip(rows, flagged, strict=True)]
    cells = tuple(Cell(f"{mark}{c.text}", c.tone) for c, mark in zip(plain.cells, marks, strict=True))
    return replace(plain, cells=cells)


def flags(rows: Iterable[tuple[str, Group | BackendReport, float]]) -> list[str]:
    """Explain ! in rows of (name, group, its kernel time): the share of kernels above their roof, and which."""
    shown = [
        f"{clean(name, 60)} {units.text(row.above_ns / time, '%')}{_in(row.above_kernels, name)}"
        for name, row, time in rows
        if row.above_roof and time
    ]
    more = f", and {len(shown) - _FLAGGED} more" if len(shown) > _FLAGGED else ""
    return [f"{BROKEN}. Share of the time: {', '.join(shown[:_FLAGGED])}{more}."] if shown else []


def _in(kernels: Sequence[str], own: str) -> str:
    """Say in which kernels, where that is not `own` alone."""
    if list(kernels) in ([], [own]):
        return ""
    more = ", …" if len(kernels) > _NAMED else ""
    return f" ({', '.join(clean(k, 40) for k in kernels[:_NAMED])}{more})"


def notes(rows: Iterable[tuple[str, Group]]) -> list[str]:
    """Explain the marks in the column of efficiencies, and which kernels count as at their roof."""
    rows = list(rows)
    helped = (g for _, g in rows if g.example and g.helped_ns and g.helped_ns >= HELPED * g.time_ns)
    held = list(dict.fromkeys(g.key for g in helped))
    more = f" and {len(held) - _FLAGGED} more" if len(held) > _FLAGGED else ""
    names = ", ".join(clean(name, 60) for name in held[:_FLAGGED])
    text = f"A cache held a part of the bytes of {names}{more}: what is so faster than measured counts as at its roof."
    return [*flags((name, g, g.time_ns) for name, g in rows), *([text] if held else [])]
