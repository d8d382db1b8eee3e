"""The report as a page. What is shown of it, and in which order, is said here and nowhere else.

A new section of a backend is a file in `render/sections/`, or, as the others, a function here and its name in
`OF_BACKEND` (`OF_MAKING` for how the report was made). What a run shows of all backends together is in `render/run.py`.
Terminal, Markdown, notebook and HTML show it from there.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from perfkit.analysis.results import BackendReport, Report
from perfkit.render import sections, sentences, tables
from perfkit.render.cells import Table
from perfkit.render.page import SCREEN, SUMMARY, WHOLE, Item, Page, Part, Section
from perfkit.render.tables import step

ROWS = 8  # of a table in the short form, which is about two screens
FINDINGS = 5  # of one backend in the short form
FEW = 3  # findings of each of several backends in the short form
_DEPTH = 2  # levels of the module tree where not all is shown

Make = Callable[["About"], Iterator[Section]]


@dataclass(frozen=True)
class ReportLength:
    """How long a report is: rows of a table and findings (None: all), how much is folded away, how many backends."""

    rows: int | None = None
    findings: int | None = None
    fold: int = WHOLE
    backends: int | None = None

    @property
    def short(self) -> bool:
        """Return whether several backends are shown side by side, without details of each."""
        return self.fold < WHOLE


def on_terminal(limit: int | None) -> ReportLength:
    """The form on a terminal: the short one, one with `limit` rows a table, or for 0 the whole report."""
    rows = ROWS if limit is None else limit or None
    return ReportLength(rows=rows, findings=rows and min(rows, FINDINGS), fold=SCREEN if rows else WHOLE)


def report_page(report: Report, form: ReportLength) -> Page:
    """The page of `report` in `form`."""
    captured = [b for b in report.backends if b.kernels][: form.backends]
    shown = report.backends if form.backends is None else captured
    return Page(
        title=sentences.heading(report),
        settings=[sentences.settings(report)],
        about=sentences.data(report),
        verdict=sentences.verdict(report),
        sections=_of_run(report, captured),
        parts=[*(_part(report, backend, captured, form) for backend in shown), _making(report, form)],
        warnings=sentences.footnotes(report),
    )


def _part(report: Report, backend: BackendReport, captured: list[BackendReport], form: ReportLength) -> Part:
    several = len(captured) > 1 or not backend.kernels
    about = About(backend, form, several)
    return Part(
        title=sentences.clean(backend.name) if report.kind == "run" or several else "",
        bad=backend.status in tables.FAULTY,
        backend=backend.name,
        fold=SUMMARY if several else WHOLE,
        sections=[made for section in _of_backend(backend) for made in section(about)],
    )


def _of_run(report: Report, captured: list[BackendReport]) -> list[Section]:
    if report.kind != "run":
        return []
    from perfkit.render import run

    return list(run.sections(report, captured))


def _found_after(backend: BackendReport) -> dict[str, list[Make]]:
    """The functions of `render/sections/` that have something to show of `backend`, by the section that they follow."""
    by_name: dict[str, list[Make]] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(sections.__path__)):
        if getattr(backend, name, True):
            module = importlib.import_module(f"{sections.__name__}.{name}")
            by_name.setdefault(module.AFTER, []).append(module.sections)
    return by_name


def _of_backend(backend: BackendReport) -> Iterator[Make]:
    """`OF_BACKEND` with the modules of `render/sections/` that have something to show where they belong."""
    found = _found_after(backend)
    for section in OF_BACKEND:
        yield section
        yield from found.get(section.__name__.removeprefix("_"), ())


def _making(report: Report, form: ReportLength) -> Part:
    sections = [made for section in OF_MAKING for made in section(report, form)]
    return Part(title="How it was made", fold=WHOLE, sections=sections)


@dataclass(frozen=True)
class About:
    """A backend whose sections are made, the form they are for, and whether there are others."""

    backend: BackendReport
    form: ReportLength
    several: bool

    @property
    def alone(self) -> int:
        """The fold of what stands side by side already where there are several backends."""
        return WHOLE if self.several else SCREEN

    @property
    def doubtful(self) -> int:
        """The fold of figures that mean little where the backend's results are wrong, and others are there."""
        return WHOLE if self.several and self.backend.status in tables.FAULTY else SCREEN

    @property
    def rows(self) -> int | None:
        """Rows of a table; fewer where several backends are shown in short."""
        rows = self.form.rows
        return max(3, rows // 2) if rows is not None and self.several and self.form.short else rows


def _of(*made: Table | None, fold: int = SUMMARY, view: str = "") -> Iterator[Section]:
    """Return a section for each of the tables that exists."""
    return (Section(table=table, fold=fold, view=view) for table in made if table is not None)


# One backend.


def _findings(about: About) -> Iterator[Section]:
    """Yield the findings."""
    backend, limit = about.backend, about.form.findings
    if not backend.findings and not backend.unjudged:
        return
    limit = min(limit, FEW) if limit is not None and about.several and about.form.short else limit
    shown = backend.findings[:limit]
    of = f" ({len(shown)} of {len(backend.findings)})" if len(shown) < len(backend.findings) else ""
    said = [(*sentences.finding(found, backend.per), sentences.lines(found)) for found in shown]
    notes = [sentences.FINDINGS_NOTE] if shown else []
    yield Section(
        title=f"{sentences.FINDINGS}{of}",
        items=[Item(head, [evidence, *lines, f"→ {remedy}"]) for head, evidence, remedy, lines in said],
        numbered=True,
        notes=[*notes, *([sentences.unjudged(backend)] if backend.unjudged else [])],
        view="findings",
    )


def _roofline(about: About) -> Iterator[Section]:
    yield Section(view="roofline")


def _accounting(about: About) -> Iterator[Section]:
    yield from _of(step.accounting([about.backend]), fold=about.alone, view="accounting")


def _kinds(about: About) -> Iterator[Section]:
    """Passes and kinds of kernel, with every measure."""
    backend = about.backend
    if backend.passes:
        total = backend.tree.total if backend.tree else None
        yield from _of(tables.groups("Passes", "pass", backend.passes, total), fold=about.alone, view="groups")
    if tables.worth_grouping(backend):
        yield from _of(tables.groups("Kernel types", "type", backend.families), fold=about.alone, view="groups")


def _kernels(about: About) -> Iterator[Section]:
    backend, rows, fold = about.backend, about.rows, about.doubtful
    if not backend.kernels:
        return
    total = backend.tree.total if backend.tree else None
    by_time = tables.kernels("Kernels by time", backend.kernels, total, len(backend.kernels), rows)
    yield Section(table=by_time, fold=SUMMARY if about.form.backends else fold, view="kernels")
    if backend.headroom and rows is not None and len(backend.kernels) > rows:
        yield from _of(tables.kernels("Kernels by headroom", backend.headroom, None, limit=rows), fold=fold)


def _modules(about: About) -> Iterator[Section]:
    tree, rows = about.backend.tree, about.form.rows
    if tree and tree.children:
        shown = tables.tree(tree, _DEPTH, rows + 6) if rows else tables.tree(tree, 99)
        yield from _of(shown, fold=about.alone, view="modules")


def _operators(about: About) -> Iterator[Section]:
    yield Section(view="operators")


def _timeline(about: About) -> Iterator[Section]:
    yield Section(view="trace")
    yield from _of(*step.timeline(about.backend, about.form.rows), fold=about.alone, view="timeline")


def _symbols(about: About) -> Iterator[Section]:
    symbols, rows = about.backend.symbols, about.form.rows
    if symbols:
        shown = rows and max(rows, sum(s.expected for s in symbols))
        yield from _of(tables.symbols(about.backend, shown), fold=about.doubtful, view="symbols")


def _correctness(about: About) -> Iterator[Section]:
    fold = SCREEN if about.backend.status == "wrong" else WHOLE
    yield from _of(tables.checks(about.backend, about.form.rows), fold=fold, view="correctness")


def _advice(about: About) -> Iterator[Section]:
    """NVIDIA's advice, under its name."""
    backend, whole = about.backend, not about.form.short
    items = [Item(sentences.advice(said, whole)) for said in backend.advice[: about.form.rows]]
    if items:
        yield Section(
            title=sentences.ADVICE, items=items, notes=[sentences.ADVICE_NOTE], fold=about.alone, view="advice"
        )


def _coverage(about: About) -> Iterator[Section]:
    said = [text for text in (sentences.coverage(about.backend), sentences.trace_checks(about.backend)) if text]
    if said:
        yield Section(text=said, view="accounting")


def _missing(about: About) -> Iterator[Section]:
    """Yield the measures that the profile lacks, with the option that supplies each."""
    if about.backend.missing:
        items = [Item(sentences.missing(one)) for one in about.backend.missing]
        yield Section(title=sentences.MISSING, text=[sentences.MISSING_NOTE], items=items, fold=SCREEN, view="missing")


# How the report was made.


def _ceilings(report: Report, form: ReportLength) -> Iterator[Section]:
    """The ceilings, on a terminal in a line where that says all."""
    if (report.roofs and not form.short) or any(roof.maximum for roof in report.roofs):
        yield from _of(tables.roofs(report), fold=SCREEN, view="ceilings")
    else:
        yield Section(text=[sentences.ceilings(report)], fold=SCREEN, view="ceilings")


def _environment(report: Report, form: ReportLength) -> Iterator[Section]:
    items = [Item(f"{name}: {value}") for name, value in sentences.environment(report)]
    if items:
        yield Section(title="Environment", items=items, fold=WHOLE, view="environment")


def _command(report: Report, form: ReportLength) -> Iterator[Section]:
    if report.command:
        title = f"Command, with perfkit {report.perfkit}"
        yield Section(title=title, code=sentences.command(report), fold=WHOLE, view="command")


OF_BACKEND: tuple[Make, ...] = (
    _findings, _roofline, _accounting, _kinds, _kernels, _operators, _modules, _timeline, _advice, _symbols,
    _correctness, _coverage, _missing,
)  # fmt: skip
OF_MAKING: tuple[Callable[[Report, ReportLength], Iterator[Section]], ...] = (_ceilings, _environment, _command)
