"""A comparison as a page: for the terminal, Markdown, and one HTML file (template `reports/compare/`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from perfkit import units
from perfkit.compare.results import (
    Comparison,
    Condition,
    Exchange,
    JudgedMetric,
    Pair,
    PartWinner,
    SideResult,
    TreeLine,
    WaterfallLine,
)
from perfkit.content import content_dir
from perfkit.render import html, page
from perfkit.render.cells import (
    Cell,
    PageColumn,
    Table,
    clean,
    column_scale,
    efficiency_tone,
    figures,
    in_part,
    table,
    words,
)
from perfkit.render.output import Output
from perfkit.render.page import Page, Section
from perfkit.render.tables import spread
from perfkit.render.tables.changed import change, changed_code, changed_lines, phases_table, span, verdict_column
from perfkit.statistics.ranks import SIGNED_RANK
from perfkit.statistics.verdicts import plural

TEMPLATE = "compare"
LIMIT = 12  # rows of the long tables in text
_LAYER = re.compile(r"layer \d+")
_OUTCOMES = {"regressed": "bad", "passed": "good", "cannot tell": "fair"}
_BASES = {
    "timed": "Sums to the difference of the timed steps.",
    "profiled": "Sums to the difference of the profiled steps: at least one side was not timed.",
    "kernels": "Sums to the difference of the kernel times: the profiles do not hold whole steps.",
}


def page_of(found: Comparison, limit: int | None = LIMIT) -> Page:
    """The page; `limit` rows of the long tables, None for all."""
    sections = [Section(table=_conditions(found.conditions))] if found.conditions else []
    sections.append(Section(table=_sides(found)))
    for pair in found.pairs:
        sections += [Section(table=one) for one in _of_pair(pair, len(found.pairs) > 1, limit)]
    if found.tree:
        sections.append(Section(table=_tree(found.tree, found.sides, limit)))
    differs = [f"✗ compared although they differ: {words_}" for words_ in found.differs]
    notes = [clean(f"! {note}", 400) for note in [*differs, *found.notes]]
    if notes:
        sections.append(Section(notes=notes))
    bad = any(s.status in ("wrong", "failed") for s in found.sides) or any(
        c.outcome == "regressed" for c in found.conditions
    )
    settings = [clean(found.how, 300)] if found.how else []
    return Page(title=clean(found.title), settings=settings, verdict=[clean(v, 500) for v in found.verdict], bad=bad,
                sections=sections)  # fmt: skip


def output(found: Comparison, limit: int | None = LIMIT) -> Output:
    """The comparison as an output, with `limit` rows of the long tables on a terminal."""
    files = {
        "html": partial(render_html, found),
        "md": partial(render_markdown, found),
        "txt": partial(render_text, found),
    }
    return Output(found, lambda form: page_of(found, limit), "comparison", files)


def render_markdown(found: Comparison, limit: int | None = LIMIT) -> str:
    """GitHub-flavoured Markdown, short enough for a pull request."""
    return page.render_markdown(page_of(found, limit))


def render_text(found: Comparison, limit: int | None = LIMIT) -> str:
    """Plain text."""
    return page.render_text(page_of(found, limit))


def render_html(found: Comparison, template: Path | None = None) -> str:
    """One HTML file that needs nothing else. Raises what `perfkit.render.html.page` raises."""
    whole = page_of(found, None)
    content = html.embedded(found, page.page_data(whole))
    return html.page(template or content_dir("reports") / TEMPLATE, found.title, content)


def _of_units(found: Comparison) -> str:
    """Say what the steps are medians of, and how their ratios were estimated."""
    said = ""
    if of := [s.unit for s in found.sides if s.unit and s.unit != "step"]:
        said += f" A side's step is the median over its {' or its '.join(map(plural, dict.fromkeys(of)))}."
    judged = [p.step.judgement for p in found.pairs if p.step.judgement.ratio is not None]
    if not judged:
        return said
    paired = all(j.method == SIGNED_RANK for j in judged)
    how = "from pairs where the sides alternated" if paired else "over all pairs of the two sides' steps"
    return f"{said} ÷ first is estimated {how}, and need not be the quotient of the steps shown."


def _sides(found: Comparison) -> Table:
    sides = found.sides
    steps = [s.step for s in sides]
    scale = column_scale([s.value if s else None for s in steps], "ns")
    note = f"Amounts are of one {' or '.join(dict.fromkeys(s.per for s in sides))}.{_of_units(found)}"
    paper = [s.label for s in sides if s.datasheet]
    by_paper = f"eff. of {', '.join(paper)} is of a datasheet's roof, which no kernel reaches."
    shares = [s.efficiency for s in sides]
    judged = [None, *(p.step.judgement for p in found.pairs)]
    ratios = [f"{j.ratio:.3f}" if j and j.ratio is not None else units.ABSENT for j in judged]
    ranges = [f"{j.low:.3f}–{j.high:.3f}" if j and j.low is not None and j.high is not None else "" for j in judged]
    return table(
        "Sides",
        words("side", [s.label for s in sides], ["strong"] * len(sides), name=True),
        PageColumn("results", tuple(_status(s) for s in sides), numeric=False),
        figures("step", [s.value if s else None for s in steps], "ns", scale=scale),
        spread("95 % CI", steps, scale, priority=3),
        PageColumn("÷ first", tuple(Cell(r) for r in ratios), "×"),
        PageColumn("95 % CI", tuple(Cell(r, "dim") for r in ranges), "×", priority=1),
        verdict_column(judged),
        figures("kernels", [s.kernel_ns for s in sides], "ns", priority=5),
        figures("launches", [s.launches for s in sides], "count", priority=4),
        figures("work", [s.flop for s in sides], "FLOP", priority=7, at_least=[in_part(s.flop_known) for s in sides]),
        figures("moved", [s.bytes for s in sides], "B", priority=6, at_least=[in_part(s.bytes_known) for s in sides]),
        figures("eff.", shares, "%", [efficiency_tone(share) for share in shares], priority=2),
        figures("memory", [s.peak_memory_bytes for s in sides], "B", priority=5),
        figures("placed", [s.placed for s in sides], "%", priority=8),
        notes=[note, *([by_paper] if paper else [])],
    )  # fmt: skip


def _head(label: str) -> str:
    """A side's label at the head of a column."""
    return clean(label, 24)


def _status(side: SideResult) -> Cell:
    if side.status in ("wrong", "failed", "unavailable"):
        return Cell(f"✗ {side.status}", "bad")
    return Cell("✓ correct", "good") if side.checked else Cell("not checked", "dim")


def _conditions(conditions: Sequence[Condition]) -> Table:
    return table(
        "Gate",
        words("condition", [c.text for c in conditions], name=True),
        words("outcome", [c.outcome for c in conditions], [_OUTCOMES[c.outcome] for c in conditions]),
        words("why", [c.why for c in conditions], least=20),
    )


def _of_pair(pair: Pair, several: bool, limit: int | None) -> Iterator[Table]:
    about = f": {pair.first} → {pair.second}" if several else ""
    if pair.waterfall:
        yield _waterfall(pair, about)
    if pair.tested:
        yield _tested(pair.tested, about)
    if pair.phases:
        yield phases_table(pair.phases, about)
    if pair.served:
        yield _served(pair, about, limit)
    if pair.exchanges:
        yield _exchanges(pair, about, limit)
    if changed := changed_lines(pair, about, limit):
        yield changed
    if inside := changed_code(pair, about, limit):
        yield inside


def _waterfall(pair: Pair, about: str) -> Table:
    w = pair.waterfall
    assert w is not None
    whole = WaterfallLine(
        name={"timed": "step", "profiled": "profiled step", "kernels": "kernels"}[w.basis], level=0, kind="whole",
        first_ns=w.first_ns, second_ns=w.second_ns, difference_ns=w.difference_ns,
    )  # fmt: skip
    lines = [*w.lines, whole]
    scale = column_scale([v for line in lines for v in (line.first_ns, line.second_ns)], "ns")
    largest = max((abs(line.difference_ns) for line in lines), default=0.0)
    note = f"{_BASES[w.basis]} Lines set in belong to the line above them. Nothing is scaled."
    names = [f"{'· ' * line.level}{line.name}" for line in lines]
    return table(
        f"Where the difference comes from{about}",
        words("part", names, ["" if line.level else "strong" for line in lines], name=True),
        figures(_head(pair.first), [line.first_ns for line in lines], "ns", scale=scale),
        figures(_head(pair.second), [line.second_ns for line in lines], "ns", scale=scale),
        PageColumn("difference", tuple(Cell(_signed(line.difference_ns, scale)) for line in lines), scale.suffix),
        PageColumn("", tuple(_bar(line.difference_ns, largest) for line in lines), numeric=False, priority=1),
        notes=[note],
        total=True,
    )


def _signed(value: float, scale: units.Scale) -> str:
    text = scale.number(abs(value))
    sign = "" if not any(c in "123456789" for c in text) else "+" if value > 0 else "−"
    return f"{sign}{text}"


def _bar(value: float, largest: float) -> Cell:
    cells = round(abs(value) / largest * 16) if largest else 0
    return Cell("█" * cells, "poor" if value > 0 else "good")


def _tested(rows: Sequence[JudgedMetric], about: str) -> Table:
    judged = [t.judgement for t in rows]
    return table(
        f"What was tested{about}",
        words("metric", [t.metric for t in rows], name=True),
        PageColumn("first", tuple(Cell(units.text(t.first, t.unit)) for t in rows)),
        PageColumn("second", tuple(Cell(units.text(t.second, t.unit)) for t in rows)),
        PageColumn("change", tuple(Cell(change(j.ratio)) for j in judged)),
        PageColumn("95 % CI", tuple(Cell(span(j.low, j.high), "dim") for j in judged)),
        PageColumn("p", tuple(Cell(units.ABSENT if j.adjusted_p is None else f"{j.adjusted_p:.3f}") for j in judged),
               priority=2),
        PageColumn("would show", tuple(Cell(_share(j.detectable)) for j in judged), priority=3),
        verdict_column(judged),
        words("", [j.why for j in judged], ["dim"] * len(rows), priority=4, least=12),
        notes=["p after Holm's correction over all these lines; \"would show\": the least change that would have "
               "been shown four times out of five. A change is the test's own estimate, and need not be the "
               "quotient of what is shown."],
    )  # fmt: skip


def _share(value: float | None) -> str:
    return units.ABSENT if value is None else f"{value:.1%}"


def _exchanges(pair: Pair, about: str, limit: int | None) -> Table:
    rows = pair.exchanges[:limit]
    scale = column_scale([v for e in rows for v in (e.first_ns, e.second_ns)], "ns")
    left = len(pair.exchanges) - len(rows)
    return table(
        f"What became of what{about}",
        words("part of the model", [_part(e) for e in rows], name=True),
        words(_head(pair.first), [_kernels(e.first) for e in rows], least=20),
        figures("", [e.first_ns for e in rows], "ns", scale=scale),
        words(_head(pair.second), [_kernels(e.second) for e in rows], least=20),
        figures("", [e.second_ns for e in rows], "ns", scale=scale),
        notes=["Kernels with their calls a step; repeated layers together. A kernel marked (part) serves other parts "
               "too, and its time is divided among them.", *([f"{left} more parts are not shown."] if left else [])],
    )  # fmt: skip


def _served(pair: Pair, about: str, limit: int | None) -> Table:
    rows = pair.served[:limit]
    judged = [s.tested.judgement for s in rows]
    times = [(s.tested.first, s.tested.second) for s in rows]
    scale = column_scale([v for both in times for v in both], "ns")
    shown = [s.best or j.verdict for s, j in zip(rows, judged, strict=True)]
    left = len(pair.served) - len(rows)
    return table(
        f"Which executors serve which part best{about}",
        words("part of the model", [_part(s) for s in rows], name=True),
        figures(_head(pair.first), [one for one, _ in times], "ns", scale=scale),
        figures(_head(pair.second), [other for _, other in times], "ns", scale=scale),
        PageColumn("change", tuple(Cell(change(j.ratio)) for j in judged)),
        PageColumn("95 % CI", tuple(Cell(span(j.low, j.high), "dim") for j in judged), priority=1),
        words("best", [_head(name) for name in shown], ["strong" if s.best else "dim" for s in rows]),
        words("why", [s.why or s.tested.judgement.why for s in rows], least=20),
        notes=["Kernel time a step, judged over launches, all parts corrected together; parts below 1 % are left out.",
               *([f"{left} more parts are not shown: --limit 0 shows all."] if left else [])],
    )  # fmt: skip


def _part(exchange: Exchange | PartWinner) -> str:
    return " · ".join(filter(None, (exchange.pass_, exchange.module, exchange.operator)))


def _kernels(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f", and {len(names) - 4} more" if len(names) > 4 else "") if names else "nothing"


def _tree(lines: Sequence[TreeLine], sides: Sequence[SideResult], limit: int | None) -> Table:
    shown, left = (list(lines), False) if limit is None else _short(lines)
    names = [f"{'· ' * line.level}{line.name}" for line in shown]
    columns = [words("place", names, ["strong" if line.level < 2 else "" for line in shown], name=True)]
    cells = [[line.cells[i] for line in shown] for i in range(len(sides))]
    scale = column_scale([c.time_ns for column in cells for c in column if c], "ns")
    for side, column in zip(sides, cells, strict=True):
        columns.append(figures(_head(side.label), [c.time_ns if c else None for c in column], "ns", scale=scale))
    for number, (header, unit, pick, known) in enumerate(
        (
            ("launches", "count", lambda c: c.launches, lambda c: 1.0),
            ("eff.", "%", lambda c: c.efficiency, lambda c: 1.0),
            ("moved", "B", lambda c: c.bytes, lambda c: c.bytes_known),
            ("work", "FLOP", lambda c: c.flop, lambda c: c.flop_known),
        )
    ):
        for side, column in zip(sides, cells, strict=True):
            values = [pick(c) if c else None for c in column]
            parts = header == "launches" and any(v is not None and v != round(v) for v in values)
            own = units.Scale(1.0, "", 1) if parts else None  # a fused kernel is a part of a launch in each place
            limits = [c is not None and in_part(known(c)) for c in column]
            columns.append(
                figures(f"{header} {_head(side.label)}", values, unit, priority=2 + number, scale=own, at_least=limits)
            )
    notes = ["Kernel time a step. A fused kernel is divided among the operators it serves."]
    if left:
        notes.append("Operators are shown of the first layer only: --limit 0 shows all.")
    return table("The step, side by side", *columns, notes=notes)


def _short(lines: Sequence[TreeLine]) -> tuple[list[TreeLine], bool]:
    """Without the operators of repeated layers but the first."""
    kept, hidden, left = [], False, False
    for line in lines:
        if line.level < 2:
            hidden = False
        elif line.level == 2:
            hidden = bool(_LAYER.fullmatch(line.name)) and line.name != "layer 0"
        elif hidden:
            left = True
            continue
        kept.append(line)
    return kept, left
