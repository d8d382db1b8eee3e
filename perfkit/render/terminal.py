"""The report in a terminal: verdict, speed beside correctness, accounting, passes, kernels, ceilings, footnotes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perfkit.analysis.results import BackendReport, Group, Report
from perfkit.analysis.words import apart
from perfkit.render import sentences, tables
from perfkit.render.cells import Cell, Column, Table, crop
from perfkit.render.phases import phases_tables
from perfkit.render.ranks import ranks_tables
from perfkit.render.tables.fusion import fusion_tables

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDTH = 110
LIMIT = 8  # rows of a table in the short form, which is about two screens
NAME_WIDTH = 36  # the least that a column of names keeps
LEAST_WIDTH = 8  # what any column of text keeps
FINDINGS = 5  # of one backend in the short form
FEW = 3  # findings of each of several backends in the short form
_GAP = 2

STYLES = {
    "good": "green",
    "fair": "yellow",
    "poor": "red",
    "bad": "bold red",
    "strong": "bold",
    "dim": "bright_black",
    "title": "bold cyan",
}


def render(report: Report, width: int = WIDTH, color: bool = False, limit: int | None = None) -> str:
    """The report as text `width` columns wide; `limit` rows a table: 0 for all, None for the short form."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=color, color_system="standard" if color else None, no_color=not color,
        legacy_windows=False, emoji=False, highlight=False, markup=False, _environ={},
    )  # fmt: skip
    show(report, console, limit)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def show(report: Report, console: Console, limit: int | None = None) -> None:
    """Print the report on `console`, as wide as that is but at most 120, in colour where it has colour."""
    from rich.text import Text

    width = min(console.width, 120)
    for part in _parts(report, LIMIT if limit is None else limit or None):
        indent, hang = 0, 0
        if isinstance(part, Table):
            lines = list(table_lines(part, width))
        else:
            indent, hang = _indents(part.text)
            lines = [Text(part.text.lstrip(), style=STYLES.get(part.tone, ""))]
        for line in lines:
            for number, piece in enumerate(line.wrap(console, width - indent - hang) or [line]):
                piece.rstrip()
                piece.pad_left(indent + (hang if number else 0) if piece.plain else 0)
                console.print(piece, soft_wrap=True)


_MARKER = re.compile(r" *((\d+\.|·|→) )?")


def _indents(text: str) -> tuple[int, int]:
    """The spaces that a paragraph begins with, and how much farther in its next lines stand: beside a list's marker."""
    found = _MARKER.match(text)
    assert found is not None  # it matches nothing too
    marker = found[1] or ""
    return found.end() - len(marker), len(marker)


def _parts(report: Report, limit: int | None) -> Iterator[Cell | Table]:
    """Paragraphs and tables in the order of reading."""
    yield Cell(sentences.heading(report), "strong")
    yield Cell(sentences.settings(report), "dim")
    for line in sentences.data(report):
        yield Cell(line, "dim")
    yield Cell("")
    for sentence in sentences.verdict(report):
        yield Cell(f"▸ {sentence}")
    shown = [b for b in report.backends if b.kernels]
    if report.settings is not None or report.kind == "run":
        yield tables.backends(report)
        yield from phases_tables(report)
        yield from ranks_tables(report)
    if sentences.mfu(report):
        yield Cell(sentences.mfu(report), "dim")
    if len(shown) > 1:
        yield from _compared(shown)
    for backend in shown:
        yield from _backend(backend, len(shown), limit)
    for backend in report.backends:
        if not backend.kernels:
            yield from _missing(backend)
    if any(roof.maximum for roof in report.roofs):
        yield tables.roofs(report)
    else:
        yield Cell("")
        yield Cell(sentences.ceilings(report), "dim")
    for note in sentences.footnotes(report):
        yield Cell(f"! {note}", "fair")


def _compared(shown: list[BackendReport]) -> Iterator[Cell | Table]:
    """What every backend does, in the same rows."""
    accounting = tables.accounting(shown)
    if accounting:
        yield accounting
    if any(b.passes for b in shown):
        yield tables.side_by_side("Passes", "pass", shown, lambda b: b.passes)
    yield tables.side_by_side("Kernel types", "type", shown, lambda b: b.families)
    for backend in shown:
        yield from fusion_tables(backend)


def _backend(backend: BackendReport, of: int, limit: int | None) -> Iterator[Cell | Table]:
    """One backend alone. Where several are shown, the short form leaves out what stands side by side already."""
    total = backend.tree.total if backend.tree else None
    if of > 1:
        yield Cell("")
        yield Cell(f"━━ {sentences.clean(backend.name)} ━━", "bad" if backend.status in tables.FAULTY else "strong")
    whole = of == 1 or limit is None
    yield from _findings(backend, limit and min(limit, FINDINGS if whole else FEW))
    if whole:
        yield from _parts_of(backend, total, alone=of == 1)
    if whole or backend.status not in tables.FAULTY:
        few = limit if limit is None or whole else max(3, limit // 2)
        yield tables.kernels("Kernels by time", backend.kernels, total, len(backend.kernels), few)
        if backend.headroom and few is not None and len(backend.kernels) > few:
            yield tables.kernels("Kernels by headroom", backend.headroom, None, limit=few)
    if backend.tree and backend.tree.children and whole:
        yield tables.tree(backend.tree, 2 if limit else 99, limit and limit + 6)
    if whole:
        yield from tables.timeline(backend, limit)
    if backend.symbols and (whole or backend.status not in tables.FAULTY):
        yield tables.symbols(backend, limit and max(limit, sum(s.expected for s in backend.symbols)))
    checks = tables.checks(backend, limit) if limit is None or backend.status == "wrong" else None
    if checks:
        yield checks
    if whole:
        yield from _advice(backend, limit)
    if backend.coverage:
        yield Cell("")
        yield Cell(sentences.coverage(backend), "dim")
    yield from _missing(backend)


def _missing(backend: BackendReport) -> Iterator[Cell]:
    """What the checks of the profile found, and what it does not hold."""
    checks = sentences.trace_checks(backend)
    if checks:
        yield Cell(checks if backend.kernels else f"{sentences.clean(backend.name)}: {checks}", "dim")
    if backend.missing:
        yield Cell(f"{sentences.MISSING}, with the option of ncu that supplies it:", "dim")
        for one in backend.missing:
            yield Cell(f"  · {sentences.missing(one)}", "dim")


def _findings(backend: BackendReport, limit: int | None) -> Iterator[Cell]:
    """What to do next, the first `limit` findings."""
    if not backend.findings and not backend.unjudged:
        return
    shown = backend.findings[:limit]
    of = f" ({len(shown)} of {len(backend.findings)})" if len(shown) < len(backend.findings) else ""
    yield Cell("")
    yield Cell(f"{sentences.FINDINGS}{of}", "title")
    for number, found in enumerate(shown, start=1):
        head, evidence, remedy = sentences.finding(found, backend.per)
        yield Cell(f"{number}. {head}", "strong")
        yield Cell(f"   {evidence}")
        yield Cell(f"   → {remedy}")
    if shown:
        yield Cell(sentences.FINDINGS_NOTE, "dim")
    if backend.unjudged:
        yield Cell(sentences.unjudged(backend), "dim")


def _advice(backend: BackendReport, limit: int | None) -> Iterator[Cell]:
    """NVIDIA's advice, under its name."""
    if not backend.advice:
        return
    yield Cell("")
    yield Cell(sentences.ADVICE, "title")
    for said in backend.advice[:limit]:
        yield Cell(f"  · {sentences.advice(said)}")
    yield Cell(sentences.ADVICE_NOTE, "dim")


def _parts_of(backend: BackendReport, total: Group | None, alone: bool) -> Iterator[Table]:
    """Accounting, passes and kernel types of one backend, with every measure."""
    accounting = tables.accounting([backend]) if alone else None
    if accounting:
        yield accounting
    if backend.passes:
        yield tables.groups("Passes", "pass", backend.passes, total)
    if tables.worth_grouping(backend):
        yield tables.groups("Kernel types", "type", backend.families)


def table_lines(table: Table, width: int) -> Iterator[Text]:
    """The title, the header and the rows, aligned, at most `width` wide: columns go, then names are cropped."""
    from rich.text import Text

    columns, widths = _fit(table, width)
    yield Text("")
    yield Text(crop(table.title, width), style="bold cyan")
    if any(c.unit for c in columns):
        yield _line([Cell(c.header, "dim") for c in columns], columns, widths)
        yield _line([Cell(c.unit, "dim") for c in columns], columns, widths)
    else:
        yield _line([Cell(c.header, "dim") for c in columns], columns, widths)
    cells = [_apart(c.cells, w) if c.name else c.cells for c, w in zip(columns, widths, strict=True)]
    rows = list(zip(*cells, strict=True))
    for number, row in enumerate(rows):
        if table.total and number == len(rows) - 1:
            yield Text("─" * (sum(widths) + _GAP * (len(widths) - 1)), style="bright_black")
        yield _line(row, columns, widths)
    for note in table.notes:
        yield Text(note, style="bright_black")


def _fit(table: Table, width: int) -> tuple[list[Column], list[int]]:
    """The columns that fit in `width` and their widths. Columns of the highest priority number go first."""
    columns = list(table.columns)
    while True:
        widths = [_natural(c) for c in columns]
        least = sum(min(w, NAME_WIDTH if c.name else c.least or w) for w, c in zip(widths, columns, strict=True))
        expendable = max((c.priority for c in columns), default=0)
        if least + _GAP * (len(columns) - 1) <= width or not expendable:
            return columns, _shrunk(columns, widths, width)
        columns.remove(next(c for c in reversed(columns) if c.priority == expendable))


def _shrunk(columns: list[Column], widths: list[int], width: int) -> list[int]:
    """Widths that add up to at most `width`: the widest column of text gives way, and figures only at the very last."""
    shrunk = list(widths)
    text = [i for i, column in enumerate(columns) if not column.numeric]
    for _ in range(sum(widths) + _GAP * (len(widths) - 1) - width):
        wide = [i for i in text if shrunk[i] > LEAST_WIDTH] or range(len(shrunk))
        shrunk[max(wide, key=shrunk.__getitem__)] -= 1
    return shrunk


def _natural(column: Column) -> int:
    from rich.cells import cell_len

    return max(cell_len(text) for text in (column.header, column.unit, *(c.text for c in column.cells)))


def _line(cells: list[Cell] | tuple[Cell, ...], columns: list[Column], widths: list[int]) -> Text:
    from rich.text import Text

    line = Text(no_wrap=True)
    for cell, column, width in zip(cells, columns, widths, strict=True):
        text = Text(_cropped(cell.text, width), style=STYLES.get(cell.tone, ""))
        text.align("right" if column.numeric else "left", width)
        if line:
            line.append(" " * _GAP)
        line.append_text(text)
    line.rstrip()
    return line


def _apart(cells: Sequence[Cell], width: int) -> list[Cell]:
    """Cells of which no two that differ read alike in `width`."""
    short = [_cropped(cell.text, width) for cell in cells]
    alike = [len({c.text for c, s in zip(cells, short, strict=True) if s == text}) > 1 for text in short]
    longer = iter(apart([cell.text for cell, is_alike in zip(cells, alike, strict=True) if is_alike], width))
    return [replace(c, text=next(longer)) if is_alike else c for c, is_alike in zip(cells, alike, strict=True)]


def _cropped(text: str, width: int) -> str:
    """`text` in at most `width` terminal cells, wide characters counted as two."""
    from rich.cells import cell_len

    shown = crop(text, width)
    while cell_len(shown) > width:
        shown = crop(text, len(shown) - 1)
    return shown
