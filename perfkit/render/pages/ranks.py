"""A report on several ranks as a page: who is late, the ranks as rows, the collectives against their bandwidth."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perfkit import units
from perfkit.content import content_dir
from perfkit.ranks import detail, naming
from perfkit.ranks.drawing import Drawing
from perfkit.ranks.results import Collective, RanksReport, RankStep
from perfkit.render import sentences
from perfkit.render.cells import Cell, PageColumn, Table, clean, figures, table, words
from perfkit.render.html import render as render_report
from perfkit.render.page import Page, Section, page_data
from perfkit.render.page import render_html as render_page
from perfkit.render.pages.figures import Figure, Series
from perfkit.render.views import Answers

TEMPLATE = "ranks"
_FEW = 20  # collectives in the table of text
_RANKS = 24  # ranks in the tables of text; of more the latest stand first
_NO_ROOF = "Roofs are measured by `perfkit ceilings --ranks N` on the machine of the traces (on GPUs --device cuda)."
_OF_TIMED = "Times are of the profiled steps, what something saves is of the step without the profiler."
_WAIT = 0.1  # of the step: what a rank waits is then marked


def page(report: RanksReport) -> Page:
    """The page for `perfkit report RANK0 RANK1 …`."""
    sections = [Section(table=_ranks(report), notes=_footnotes(report)), Section(table=_idle(report))]
    sections += [Section(table=_collectives(report.collectives))]
    if drawn := _bandwidth(report):
        sections.append(Section(figures=[drawn]))
    if report.what_ifs:
        sections.append(Section(table=_what_ifs(report)))
    sections.append(_findings(report))
    if report.imbalance:
        sections.append(Section(table=_imbalance(report)))
    sections.append(Section(table=_clocks(report), notes=[f"! {clean(p, 600)}" for p in report.problems]))
    return Page(
        title=f"{report.title} of one job",
        settings=[
            report.backend,
            f"{report.steps} step" + "s" * (report.steps != 1),
            f"step {units.text(report.step_ns.value, 'ns')} on the slowest rank (mean)",
            *(
                []
                if report.timed_step_ns is None
                else [f"{units.text(report.timed_step_ns, 'ns')} without the profiler (median)"]
            ),
        ],
        verdict=[clean(line, 600) for line in report.headline],
        sections=sections,
    )


def render_html(made: Page, drawing: Drawing) -> str:
    """The page as one HTML file, with the timeline of all ranks. Raises what `perfkit.render.html.page` raises."""
    from perfkit.render.timeline import ranks

    answers = Answers(timelines={ranks.NAME: ranks.embedded(drawing)})
    return render_page(made, content_dir("reports") / TEMPLATE, answers)


def render_job(made: Page, report: RanksReport, drawing: Drawing, answers: Answers) -> str:
    """The page, and below it the report of the rank in detail, with that one's `answers`: one HTML file."""
    from perfkit.render.timeline import ranks

    assert report.detail is not None
    whole = msgspec.structs.replace(
        answers,
        timelines={ranks.NAME: ranks.embedded(drawing), **answers.timelines},
        job={"page": page_data(made), "detail": detail.heading(report)},
    )
    return render_report(report.detail, answers=whole)


def encoded(made: Page, drawing: Drawing) -> bytes:
    """Return the page as JSON for TensorBoard: its sections, and the timeline as text ("" where it is too large)."""
    from perfkit.render.timeline import ranks

    content = {"page": page_data(made), "timeline": ranks.embedded(drawing)}
    return msgspec.json.encode(content)


def _rows(report: RanksReport) -> list[RankStep]:
    """The ranks by number; where text does not show all, by how late they are."""
    if len(report.parts) <= _RANKS:
        return report.parts
    return sorted(report.parts, key=lambda part: (-part.late_ns.value * part.late_steps, part.rank))


def _ranks(report: RanksReport) -> Table:
    rows = _rows(report)
    waits = ["poor" if p.waiting_ns > _WAIT * p.step_ns else "" for p in rows]
    late = {s.rank for s in report.stragglers}
    return table(
        "Ranks: where a step goes",
        words("rank", [f"{p.rank}" for p in rows], ["strong"] * len(rows), name=True),
        words("device", [p.device for p in rows], priority=2),
        figures("step", [p.step_ns for p in rows], "ns"),
        figures("computation", [p.compute_ns for p in rows], "ns"),
        figures("waiting", [p.waiting_ns for p in rows], "ns", waits),
        figures("exposed", [p.exposed_ns for p in rows], "ns"),
        figures("copies", [p.copy_ns for p in rows], "ns", priority=1),
        figures("idle", [p.idle_ns for p in rows], "ns"),
        figures("overlapped", [p.overlapped_ns for p in rows], "ns"),
        figures(
            "late", [max(p.late_ns.value, 0.0) for p in rows], "ns", ["bad" if p.rank in late else "" for p in rows]
        ),
        words("late in", [f"{p.late_steps} of {p.steps}" for p in rows], priority=1),
        figures("covered", [p.overlap for p in rows], "%", priority=3),
        in_text=_RANKS,
    )


def _footnotes(report: RanksReport) -> list[str]:
    return [
        "Means over the steps, unions of intervals. A step is computation, waiting for other ranks and exposed "
        "transfer (what computation does not cover), copies while neither runs, and idle time; overlapped is "
        "communication that computation covers, waiting included.",
        "late: how much later than the median rank it arrives at the collectives of a step, counted once where it is "
        "as late for several in a row, beyond what the others do (median over the steps in which it is late, else over "
        "all).",
        *([_OF_TIMED] if report.timed_step_ns is not None else []),
    ]


def _idle(report: RanksReport) -> Table:
    rows = _rows(report)
    causes = sorted({c for p in rows for c in p.idle}, key=lambda c: -max(p.idle.get(c, 0.0) for p in rows))
    worth = [c for c in causes if max(p.idle.get(c, 0.0) for p in rows) >= 0.01 * report.step_ns.value][:8]
    return table(
        "Time between operators a step, by what the host did"
        if all(p.device == "cpu" for p in rows)
        else "Idle GPU time a step, by what its host did",
        words("rank", [str(p.rank) for p in rows], ["strong"] * len(rows), name=True),
        *(figures(cause, [p.idle.get(cause, 0.0) for p in rows], "ns") for cause in worth),
        in_text=_RANKS,
    )


def _collectives(rows: list[Collective]) -> Table:
    shown = rows[:_FEW]
    more = [f"{len(rows) - _FEW} more are in the JSON."] if len(rows) > _FEW else []
    return table(
        "Collectives, a step",
        words("operation", [c.operation for c in shown], name=True),
        words("group", [c.group for c in shown], priority=2, least=10),
        words("type", [c.dtype for c in shown], priority=3),
        figures("message", [c.message_bytes for c in shown], "B"),
        PageColumn("calls", tuple(Cell(f"{c.count:g}") for c in shown)),
        figures("own time", [c.latency_ns for c in shown], "ns"),
        figures("waiting", [c.waiting_ns for c in shown], "ns"),
        figures("skew", [c.skew_ns for c in shown], "ns", priority=1),
        figures("algorithm", [c.algorithm_bandwidth for c in shown], "B/s", priority=1),
        figures("bus", [c.bus_bandwidth for c in shown], "B/s"),
        figures("of roof", [c.bus_bandwidth / c.roof if c.roof and c.bus_bandwidth else None for c in shown], "%"),
        words("how", [c.algorithm for c in shown], priority=3),
        notes=[
            "Own time: the shortest kernel over the ranks, the median over calls; waiting: what all ranks' kernels "
            "take longer, a step; skew: from the first rank's arrival to the last one's.",
            *more,
            *([] if any(c.roof for c in rows) else [_NO_ROOF]),
        ],
    )


def _bandwidth(report: RanksReport) -> Figure | None:
    known = [c for c in report.collectives if c.message_bytes and c.bus_bandwidth]
    if not known or (len({c.message_bytes for c in known}) == 1 and not report.roofs):  # the table shows that
        return None
    series = []
    for operation in dict.fromkeys(c.operation for c in known):
        mine = sorted((c for c in known if c.operation == operation), key=lambda c: c.message_bytes or 0.0)
        x = [float(c.message_bytes or 0.0) for c in mine]
        series.append(Series(name=operation, x=x, y=[(c.bus_bandwidth or 0.0) / 1e9 for c in mine], line="points"))
    least, most = (limit(c.message_bytes or 0.0 for c in known) for limit in (min, max))
    for sweep in report.roofs:
        sizes = [p.bytes for p in sweep.points if least / 8 <= p.bytes <= most * 8]
        rates = [(sweep.bus_bandwidth(size) or 0.0) / 1e9 for size in sizes]
        name = f"{sweep.operation}, {sweep.ranks} ranks, measured"
        series.append(Series(name=name, x=sizes, y=rates, line="dash"))
    return Figure(title="Bus bandwidth by message", x="message, bytes", y="GB/s", series=series, log_x=True)


def _what_ifs(report: RanksReport) -> Table:
    rows = report.what_ifs
    return table(
        "What if (each by itself: they do not add up)",
        words("", [w.name for w in rows], ["strong"] * len(rows), name=True),
        figures("saves at most", [w.saves_ns for w in rows], "ns"),
        figures("step at least", [w.step_ns for w in rows], "ns"),
        words("", [w.how for w in rows], priority=1, least=20),
    )


def _findings(report: RanksReport) -> Section:
    """Return the findings: a line each, then the evidence and the remedy."""
    rows = report.findings
    notes = []
    for number, found in enumerate(rows, 1):
        head, evidence, remedy = sentences.finding(found, "step")
        notes += [f"{number}. {head} {evidence}", *sentences.lines(found), f"→ {remedy}"]
    if report.unjudged:
        notes.append("Not judged: " + "; ".join(f"{one.rule} ({one.why})" for one in report.unjudged))
    return Section(
        table=table(
            sentences.FINDINGS,
            words("finding", [f.name for f in rows], ["strong"] * len(rows), name=True),
            words("ranks", [naming.numbers(f.ranks) or "all" for f in rows]),
            figures("takes", [f.time_ns for f in rows], "ns"),
            figures("saves at most", [f.saving_ns for f in rows], "ns"),
            figures("of the step", [f.share for f in rows], "%"),
            notes=[sentences.FINDINGS_NOTE] if rows else ["Nothing that would save 2 % of the step."],
        ),
        notes=notes,
    )


def _imbalance(report: RanksReport) -> Table:
    rows = report.imbalance
    return table(
        "Computation that differs between ranks, a step",
        words("part", [r.what for r in rows], name=True),
        words("most on rank", [str(r.most_rank) for r in rows]),
        figures("most", [r.most_ns for r in rows], "ns"),
        words("least on rank", [str(r.least_rank) for r in rows]),
        figures("least", [r.least_ns for r in rows], "ns"),
    )


def _clocks(report: RanksReport) -> Table:
    rows = report.clocks
    return table(
        "Clocks next to the first rank's",
        words("rank", [str(c.rank) for c in rows], name=True),
        PageColumn("collectives", tuple(Cell(f"{c.collectives:,}") for c in rows)),
        figures("offset", [c.offset_ns for c in rows], "ns"),
        PageColumn("drift", tuple(Cell(f"{c.drift * 1e6:.1f}") for c in rows), "ppm"),
        figures("residual", [c.residual_ns for c in rows], "ns"),
        notes=["From the ends of collectives; waiting and lateness need no common clock."],
        in_text=_RANKS,
    )


def summary_rows(parts: list[RankStep]) -> Iterator[str]:
    """A line a rank, as CSV: what a spreadsheet takes."""
    names = ("step_ns", "compute_ns", "waiting_ns", "exposed_ns", "copy_ns", "idle_ns", "overlapped_ns", "transfer_ns")
    yield ",".join(["rank", "device", *names, "late_ns", "late_steps", "steps"])
    for part in parts:
        values = [f"{getattr(part, name):.0f}" for name in names]
        late = [f"{part.late_ns.value:.0f}", str(part.late_steps), str(part.steps)]
        yield ",".join([str(part.rank), part.device, *values, *late])
