"""The report's tables, one function a table: results in, text cells out. Every text renderer shares them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from perfkit import units
from perfkit.analysis.results import BackendReport, Group, Interval, ModuleNode, Report
from perfkit.analysis.roofline_results import RoofLine
from perfkit.render.cells import Cell, PageColumn, Table, clean, figures, in_part, table, words
from perfkit.render.efficiencies import efficiencies, notes
from perfkit.render.sentences import used_roofs

FAULTY = ("wrong", "failed")
WHY = 30  # characters that a column of reasons keeps
SHORT_PASS = {
    "encoder": "enc", "forward": "fwd", "classifier": "cls", "prefill": "pre", "decode": "dec", "backward": "bwd",
    "optimizer": "opt",
}  # fmt: skip


def label(backend: BackendReport) -> str:
    """A backend's name at the head of a column, marked where its result is not right."""
    return f"✗ {clean(backend.name, 14)}" if backend.status in FAULTY else clean(backend.name, 16)


def spread(header: str, intervals: Sequence[Interval | None], scale: units.Scale, *, priority: int = 0) -> PageColumn:
    """A column of 95 % intervals as low–high, in one scale; a single sample has none."""
    known = [i if i and i.samples > 1 else None for i in intervals]
    texts = [scale.span(i.low, i.high) if i else units.ABSENT for i in known]
    return PageColumn(header, tuple(Cell(t, "dim") for t in texts), scale.suffix, True, priority)


def groups(title: str, header: str, chosen: Sequence[Group], total: Group | None = None) -> Table:
    """Passes, families or modules with every measure a group has; `total` adds the row that sums them up."""
    rows = [*chosen, total] if total else list(chosen)
    keys = [*(g.key for g in chosen), "all"] if total else [g.key for g in chosen]
    return table(
        title,
        words(header, keys, name=True),
        *_measures(rows),
        notes=notes(zip(keys, rows, strict=True)),
        total=bool(total),
    )


def worth_grouping(backend: BackendReport) -> bool:
    """Return whether kinds of kernel say more than the kernels themselves."""
    many = 1 < len(backend.families) <= len(backend.kernels) / 2
    return many or bool(backend.passes and backend.kind != "ncu")


def kernels(
    title: str, chosen: Sequence[Group], total: Group | None = None, of: int = 0, limit: int | None = None
) -> Table:
    """The first `limit` kernels of `chosen` with their shapes, and the total over all `of` them."""
    shown = list(chosen if limit is None else chosen[:limit])
    rows = [*shown, total] if total else shown
    names = [f"{g.key} {clean(g.shapes, 60)}".strip() for g in shown] + ([f"all {of}"] if total else [])
    end = [""] if total else []
    judged = any(g.efficiency is not None for g in chosen)
    passes = ["+".join(SHORT_PASS.get(p, p) for p in g.passes if p != "unknown") for g in shown] + end
    return table(
        counted(title, len(shown), len(chosen)),
        words("kernel", names, name=True),
        words("pass", [units.cropped(p, 20) for p in passes], ["dim"] * len(passes), priority=2),
        *_measures(rows),
        words("bound by", [g.bound for g in shown] + end, priority=3),
        words("why", [why(g, judged) for g in shown] + end, least=WHY),
        notes=notes((g.key, g) for g in shown),
        total=bool(total),
    )


MAXIMUM = "at the maximum clock"


def why(group: Group, judged: bool = True) -> str:
    """Why a kernel takes its time, or is not judged where others are (`judged`), in a few words; "" for nothing."""
    if group.reasons:
        return group.reasons[0].label
    return group.withheld if judged and group.efficiency is None else ""


def _measures(rows: Sequence[Group]) -> list[PageColumn]:
    some_flop = [in_part(g.flop_known_ns, g.time_ns) for g in rows]
    some_bytes = [in_part(g.bytes_known_ns, g.time_ns) for g in rows]
    return [
        figures("count", [g.count for g in rows], "count", priority=1, scale=_counts(rows)),
        figures("time", [g.time_ns for g in rows], "ns"),
        figures("share", [g.share for g in rows], "%"),
        figures("work", [g.flop for g in rows], "FLOP", priority=5, at_least=some_flop),
        figures("rate", [g.flop_rate for g in rows], "FLOP/s"),
        figures("moved", [g.bytes for g in rows], "B", priority=4, at_least=some_bytes),
        figures("bandwidth", [g.bandwidth for g in rows], "B/s"),
        efficiencies(rows),
        figures("headroom", [g.headroom_ns for g in rows], "ns"),
    ]


def _counts(rows: Sequence[Group]) -> units.Scale:
    """Whole numbers, but a digit more where something ran in some of the steps only."""
    return units.Scale(1.0, "", 1 if any(0 < g.count < 1 for g in rows) else 0)


def counted(title: str, shown: int, of: int) -> str:
    """Return `title`, with how many rows of all it shows."""
    return f"{title} ({shown} of {of})" if shown < of else title


def tree(root: ModuleNode, depth: int = 3, limit: int | None = None) -> Table:
    """The module tree down to `depth` levels below the root, indented, in the order of the model.

    With a `limit` the modules that take the most time are shown, each below its parents.
    """
    rows = [(level, node) for level, node in _walk(root) if level <= depth]
    by_time = sorted(range(len(rows)), key=lambda i: -rows[i][1].total.time_ns)  # a parent before its only child
    shown = [rows[i] for i in sorted(by_time[:limit])]
    names = [f"{'· ' * level}{node.name}" for level, node in shown]
    return table(
        counted("Module tree", len(shown), len(rows)),
        words("module", names, name=True),
        *_measures([n.total for _, n in shown]),
        notes=notes((n.path or n.name, n.total) for _, n in shown),
    )


def _walk(node: ModuleNode, level: int = 0) -> Iterable[tuple[int, ModuleNode]]:
    yield level, node
    for child in node.children:
        yield from _walk(child, level + 1)


def symbols(backend: BackendReport, limit: int | None = None) -> Table:
    """Which symbol of the executed program ran on which kernel; the expected ones first."""
    ordered = sorted(backend.symbols, key=lambda s: (not s.expected, -s.count))
    shown = ordered if limit is None else ordered[:limit]
    return table(
        counted("Symbols of the executed program", len(shown), len(ordered)),
        words("trace", [s.trace for s in shown]),
        words("symbol", [s.name for s in shown], name=True),
        words("kernel", [s.kernel for s in shown]),
        figures("count", [s.count for s in shown], "count"),
        words("", ["✓ expected" if s.expected else "" for s in shown], ["good"] * len(shown)),
    )


def checks(backend: BackendReport, limit: int | None = None) -> Table | None:
    """Each comparison with the reference, failed ones and the nearest to their limit first."""
    if backend.correctness is None:
        return None
    ordered = sorted(
        backend.correctness.checks, key=lambda c: (c.ok, -(c.error / c.allowed if c.error is not None else 0))
    )
    shown = ordered if limit is None else ordered[:limit]
    return table(
        counted(f"Correctness against {clean(backend.correctness.reference)}", len(shown), len(ordered)),
        PageColumn("", tuple(Cell("✓", "good") if c.ok else Cell("✗", "bad") for c in shown), numeric=False),
        words("compared", [c.name for c in shown], name=True),
        words("error", [error_text(c.error) for c in shown], ["" if c.ok else "bad" for c in shown]),
        words("allowed", [error_text(c.allowed) for c in shown]),
        words("eager's own", [error_text(c.eager_error) for c in shown]),
    )


def error_text(error: float | None) -> str:
    """Return a relative error as text; a dash where it is unknown."""
    return units.ABSENT if error is None else f"{error:.1e}"


def roofs(report: Report) -> Table:
    """The ceilings that the efficiencies use, with those at the device's maximum clock and the vendor's."""
    rows = report.roofs if report.kind == "run" else used_roofs(report)

    def rates(header: str, pick: Callable[[RoofLine], float | None], priority: int = 0) -> PageColumn:
        texts = [units.text(pick(r), "B/s" if r.kind == "bandwidth" else "FLOP/s") for r in rows]
        return PageColumn(header, tuple(Cell(t) for t in texts), priority=priority)

    value = "value" if report.kind == "run" else report.ceilings_are.rpartition(", ")[2]
    return table(
        f"Ceilings {report.ceilings_are}" if report.kind == "run" else "Ceilings",
        words("ceiling", [r.label for r in rows], name=True),
        rates(value, lambda r: r.value),
        *([rates(MAXIMUM, lambda r: r.maximum)] if value != MAXIMUM else []),
        rates("datasheet", lambda r: r.datasheet),
        figures("working set", [r.working_set for r in rows], "iB", priority=1),
    )
