"""Tables of one step and of the capture around it: accounting, ranges, copies, waits."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit.analysis.results import BackendReport
from perfkit.render.cells import Table, clean, column_scale, figures, table, words
from perfkit.render.tables import counted, label


def accounting(chosen: Sequence[BackendReport]) -> Table | None:
    """Account for the profiled step: kernels, gaps by cause and the rest, with the step without a profiler."""
    accounted = [(b, b.accounting) for b in chosen if b.accounting]
    if not accounted:
        return None
    per = accounted[0][0].per
    timed = any(a.timed_step_ns is not None for _, a in accounted)
    causes = list(dict.fromkeys(g.cause for _, a in accounted for g in a.gaps))
    scale = column_scale([t for _, a in accounted for t in (a.profiled_step_ns, *(g.time_ns for g in a.gaps))], "ns")
    last = ["timed step"] if timed else []
    columns = [words(f"part of the {per}", ["kernels", *causes, "other", f"profiled {per}", *last])]
    for backend, a in accounted:
        gaps = {g.cause: g.time_ns for g in a.gaps}
        parts = [a.kernel_ns, *(gaps.get(c) for c in causes), a.other_ns, a.profiled_step_ns]
        tones = [*[""] * (len(parts) - 1), "strong", *("strong" for _ in last)]
        header = label(backend) if len(accounted) > 1 else "time"
        ends = [a.timed_step_ns] if timed else []
        columns.append(figures(header, [*parts, *ends], "ns", tones, scale=scale))
        shares = [None if p is None else p / a.profiled_step_ns for p in parts]
        columns.append(
            figures(
                "share", [*shares, *[None for _ in ends]], "%", ["dim"] * len(parts), priority=int(len(accounted) > 1)
            )
        )
    if len(accounted) == 1:
        texts = {g.cause: g.text for g in accounted[0][1].gaps}
        closing = ["no cause found", accounted[0][1].step_text, *("" for _ in last)]
        columns.append(words("", ["", *(texts.get(c, "") for c in causes), *closing], priority=2))
    overheads = [
        f"{clean(b.name, 40)} {a.profiler_overhead:+.1%}" for b, a in accounted if a.profiler_overhead is not None
    ]
    notes = (
        [f"Profiler overhead (profiled step over one without a profiler): {', '.join(overheads)}."] if overheads else []
    )
    return table(f"Accounting of the {per}", *columns, notes=notes)


def timeline(backend: BackendReport, limit: int | None = None) -> list[Table]:
    """Return the tables of NVTX ranges, copies and waits that a trace has."""
    made = [_ranges(backend, limit), _transfers(backend), _waits(backend)]
    return [one for one, rows in zip(made, (backend.ranges, backend.transfers, backend.waits), strict=True) if rows]


def _ranges(backend: BackendReport, limit: int | None) -> Table:
    shown = backend.ranges[:limit]
    what = "Annotations" if backend.kind == "trace" else "NVTX ranges"
    return table(
        counted(f"{what} by kernel time", len(shown), len(backend.ranges)),
        words("range", [r.name for r in shown], name=True),
        figures("count", [r.count for r in shown], "count"),
        figures("on the host", [r.host_ns for r in shown], "ns"),
        figures("kernels", [r.kernels for r in shown], "count"),
        figures("kernel time", [r.kernel_ns for r in shown], "ns"),
        figures("share", [r.share for r in shown], "%", ["dim"] * len(shown)),
        notes=["Of the whole capture, not of a step. Shares are of the time of its kernels, without copies and fills."],
    )


def _transfers(backend: BackendReport) -> Table:
    rows = backend.transfers
    return table(
        "Copies",
        words("copy", [t.name for t in rows], name=True),
        figures("count", [t.count for t in rows], "count"),
        figures("time", [t.time_ns for t in rows], "ns"),
        figures("moved", [t.bytes for t in rows], "B"),
        figures("bandwidth", [t.bandwidth for t in rows], "B/s"),
    )


def _waits(backend: BackendReport) -> Table:
    rows = backend.waits
    return table(
        "Waits for the GPU",
        words("call", [w.name for w in rows], name=True),
        figures("count", [w.count for w in rows], "count"),
        figures("time", [w.time_ns for w in rows], "ns"),
    )
