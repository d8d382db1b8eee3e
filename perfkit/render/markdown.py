"""The report as Markdown, for a pull request, an issue or a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfkit.analysis.results import BackendReport, Report
from perfkit.render import sentences, tables
from perfkit.render.cells import Cell, Column, Table
from perfkit.render.phases import phases_tables
from perfkit.render.ranks import ranks_tables
from perfkit.render.tables.fusion import fusion_tables

LIMIT = 15  # rows of a table
# What both GitHub and Python-Markdown (TensorBoard) take for markup; an underscore inside a word is none.
_ESCAPED = re.compile(r"([\\`*{}\[\]#!]|(?<!\w)_|_(?!\w))")
_ENTITIES = str.maketrans({c: f"&#{ord(c)};" for c in "&<>|~$"})


def render(report: Report, limit: int | None = LIMIT) -> str:
    """The report as GitHub-flavoured Markdown; `limit` rows a table, None for all."""
    return "\n\n".join(part for part in _parts(report, limit) if part) + "\n"


def escape(text: str) -> str:
    """`text` as Markdown that shows it as it is: no markup, link, HTML or mention survives."""
    return _ESCAPED.sub(r"\\\1", text).translate(_ENTITIES).replace("@", "@\u200b")


def table(source: Table, level: int = 3) -> str:
    """One table under its title, with its notes."""
    lines = [f"{'#' * level} {escape(source.title)}", "", _row([escape(c.title) for c in source.columns])]
    lines.append(_row(["---:" if c.numeric else "---" for c in source.columns]))
    lines += [_row([_cell(c, column) for c, column in zip(row, source.columns, strict=True)]) for row in source.rows]
    for note in source.notes:
        lines += ["", f"*{escape(note)}*"]
    return "\n".join(lines)


def summary(report: Report) -> str:
    """Verdict, and the table of backends: what fits in one view."""
    verdict = "\n".join(f"- {escape(s)}" for s in sentences.verdict(report))
    backends = table(tables.backends(report)) if report.kind == "run" else ""
    parts = map(table, (*phases_tables(report), *ranks_tables(report)))
    return "\n\n".join(part for part in (verdict, backends, *parts, escape(sentences.mfu(report))) if part)


def details(backend: BackendReport, limit: int | None) -> Iterator[str]:
    """The tables of one backend."""
    total = backend.tree.total if backend.tree else None
    if backend.findings or backend.unjudged:
        yield findings(backend, limit)
    accounting = tables.accounting([backend])
    if accounting:
        yield table(accounting)
    yield from map(table, fusion_tables(backend))
    if backend.passes:
        yield table(tables.groups("Passes", "pass", backend.passes, total))
    if tables.worth_grouping(backend):
        yield table(tables.groups("Kernel types", "type", backend.families))
    if backend.kernels:
        yield table(tables.kernels("Kernels by time", backend.kernels, total, len(backend.kernels), limit))
    if backend.headroom and limit is not None and len(backend.kernels) > limit:
        yield table(tables.kernels("Kernels by headroom", backend.headroom, None, limit=limit))
    if backend.tree and backend.tree.children:
        yield table(tables.tree(backend.tree, 2 if limit else 99, limit))
    yield from map(table, tables.timeline(backend, limit))
    if backend.symbols:
        yield table(tables.symbols(backend, limit))
    checks = tables.checks(backend, limit)
    if checks:
        yield table(checks)
    if backend.advice:
        yield advice(backend)
    yield escape(sentences.coverage(backend))
    yield escape(sentences.trace_checks(backend))
    if backend.missing:
        yield missing(backend)


def missing(backend: BackendReport) -> str:
    """What the profile does not hold, with the option that supplies it."""
    lines = "\n".join(f"- {escape(sentences.missing(one))}" for one in backend.missing)
    return f"### {sentences.MISSING}\n\nWith the option of ncu that supplies it:\n\n{lines}"


def findings(backend: BackendReport, limit: int | None) -> str:
    """What to do next, as a numbered list."""
    lines = []
    for number, found in enumerate(backend.findings[:limit], start=1):
        head, evidence, remedy = (escape(part) for part in sentences.finding(found, backend.per))
        lines.append(f"{number}. **{head}**\n   {evidence}\n   → {remedy}")
    note = [f"*{sentences.FINDINGS_NOTE}*"] if lines else []
    rest = [f"*{escape(sentences.unjudged(backend))}*"] if backend.unjudged else []
    return "\n\n".join([f"### {sentences.FINDINGS}", *note, *(["\n".join(lines)] if lines else []), *rest])


def advice(backend: BackendReport) -> str:
    """What NVIDIA's rules say, under its name."""
    lines = [f"- {escape(sentences.advice(said, whole=True))}" for said in backend.advice]
    return f"### {escape(sentences.ADVICE)}\n\n*{escape(sentences.ADVICE_NOTE)}*\n\n" + "\n".join(lines)


def footer(report: Report) -> Iterator[str]:
    """Ceilings, environment, warnings, and the command that made the run."""
    if report.roofs:
        yield table(tables.roofs(report))
    environment = sentences.environment(report)
    if environment:
        yield "### Environment\n\n" + "\n".join(f"- {escape(name)}: {escape(value)}" for name, value in environment)
    notes = sentences.footnotes(report)
    if notes:
        yield "### Warnings\n\n" + "\n".join(f"- {escape(note)}" for note in notes)
    if report.command:
        yield f"Made by {code(sentences.command(report))} with perfkit {escape(report.perfkit)}."


def code(text: str) -> str:
    """`text` as inline code, whatever backticks are in it."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def _parts(report: Report, limit: int | None) -> Iterator[str]:
    yield f"# {escape(sentences.heading(report))}"
    yield escape(sentences.settings(report))
    yield from (escape(line) for line in sentences.data(report))
    yield summary(report)
    shown = [b for b in report.backends if b.kernels]
    if len(shown) > 1:
        if any(b.passes for b in shown):
            yield table(tables.side_by_side("Passes", "pass", shown, lambda b: b.passes))
        yield table(tables.side_by_side("Kernel types", "type", shown, lambda b: b.families))
    for backend in shown:
        if report.kind == "run":
            yield f"## {escape(sentences.clean(backend.name))}"
        yield from details(backend, limit)
    for backend in report.backends:
        checks = "" if backend.kernels else sentences.trace_checks(backend)
        yield escape(f"{sentences.clean(backend.name)}: {checks}" if checks else "")
        yield missing(backend) if backend.missing and not backend.kernels else ""
    yield "## How it was made"
    yield from footer(report)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell, column: Column) -> str:
    """A name is code where that is safe in a table; what stands out is bold."""
    strong = cell.tone in ("strong", "bad")
    plain = cell.text.replace("_", "").isalnum()
    if column.name and cell.text and not (strong or plain or set("|`") & set(cell.text)):
        return code(cell.text)
    text = escape(cell.text)
    return f"**{text}**" if strong and text else text
