"""A benchmark as a page: a table for each set of sizes, times and efficiencies against size for a sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from perfkit import units
from perfkit.render.cells import Cell, PageColumn, Table, clean, efficiency_tone, figures, table, words
from perfkit.render.page import Page, Section
from perfkit.render.pages import replayed
from perfkit.render.pages.figures import Figure, Series

if TYPE_CHECKING:
    from perfkit.bench.results import Bench, BenchPoint, BenchRow, Timing
    from perfkit.statistics import Estimate

CACHES = ("warm", "cold")
_STATUS = {
    "ok": ("✓ right", "good"), "wrong": ("✗ wrong", "bad"), "failed": ("✗ failed", "bad"),
    "unchecked": ("unchecked", "dim"),
}  # fmt: skip
_BAR = 12


def page(bench: Bench) -> Page:
    """The benchmark of one operation."""
    points = [Section(table=_point(point)) for point in bench.points] if not bench.sweep else list(_sweep(bench))
    sections = [*replayed.sections(bench), *points]
    rounding = any(r.way == "pytorch" and r.status == "ok" for p in bench.points for r in p.rows)
    notes = [
        "warm: the caches hold what the call before left in them; cold: its data is in main memory. Times are medians"
        " of calls from Python, with their 95 % intervals; each call allocates its results.",
        "eff.: the time that the ceilings measured on this machine allow, over the time taken. GB/s: least bytes over "
        "the warm time.",
    ]
    if rounding:
        notes.append(
            "Error: the largest of |y − reference| / (|reference| + its root mean square), the reference in fp64. "
            "PyTorch's error may be four times that of a kernel: what it writes between operators is rounded."
        )
    sections.append(Section(notes=[*notes, *bench.notes]))
    device = bench.device_name or bench.device
    where = f"{device}, {bench.threads} thread{'s' * (bench.threads != 1)}" if bench.device == "cpu" else device
    settings = [bench.formula, where, f"seed {bench.seed}"]
    settings += [f"{name} {version}" for name, version in bench.environment.items()]
    wrong = bench.wrong
    said = bench.recorded
    title = f"{said.operator} of {clean(said.trace, 80)}: replay" if said else f"{bench.operation}: benchmark"
    verdict = [*_verdict(bench), *replayed.comparison(bench)]
    return Page(title=title, settings=settings, verdict=verdict, bad=bool(wrong), sections=sections)


def _verdict(bench: Bench) -> Iterator[str]:
    """Say what is wrong; else which way is fastest, where something was compared."""
    for point, row in bench.wrong:
        yield f"{row.label} is {row.status} at {point.title}: {row.reason}"
    if bench.wrong:
        return
    for point in bench.points if len(bench.points) == 1 else ():
        timed = [(row, t) for row in point.rows if (t := row.warm or row.cold)]
        own = next((t for row, t in timed if row.way == "pytorch"), None)
        if own and len(timed) > 1:
            row, best = min(timed, key=lambda pair: pair[1].ns.value)
            if row.way == "pytorch":
                equal = [r.label for r, _ in timed if r.speedup and r.speedup.high >= 1]
                beside = f"; no difference from {', '.join(equal)} is shown" if equal else ""
                yield f"PyTorch's own operator is the fastest: {units.text(best.ns.value, 'ns')}{beside}."
            elif row.speedup:
                s = row.speedup
                shown = f", {s.value:.2f}× as fast as PyTorch's own operator"
                doubt = f"; no difference from PyTorch's own operator is shown ({s.value:.2f}×)"
                beside = doubt if s.low <= 1 <= s.high else shown
                naive = next((t.ns.value / best.ns.value for r, t in timed if r.way == "naive" and r is not row), None)
                written = f", {naive:.2f}× as fast as models write it (naive)" if naive else ""
                yield f"{row.label} is the fastest: {units.text(best.ns.value, 'ns')}{beside}{written}."


def _point(point: BenchPoint) -> Table:
    rows = point.rows
    tones = ["bad" if r.status in ("wrong", "failed") else "strong" for r in rows]
    columns = [
        words("way", [r.label for r in rows], tones, name=True),
        PageColumn("result", tuple(_status(r) for r in rows), numeric=False),
        words("error", [_error(r) for r in rows], priority=2),
    ]
    every = [t.ns.value for r in rows for t in (r.warm, r.cold) if t]
    scale = _scale(min(every, default=0.0))
    for cache in CACHES:
        timings = [r.timing(cache) for r in rows]
        if any(timings):
            columns += _timings(cache, timings, scale)
    warm = [r.warm or r.cold for r in rows]
    columns += [
        figures("bandwidth", [t.bandwidth if t else None for t in warm], "B/s"),
        figures("rate", [t.flop_rate if t else None for t in warm], "FLOP/s"),
        PageColumn("× PyTorch", tuple(_speedup(r.speedup) for r in rows)),
        *([PageColumn("× trace", tuple(_speedup(r.of_trace) for r in rows))] if any(r.of_trace for r in rows) else []),
        words("", _bars(warm), priority=4),
        words("what", [r.text for r in rows], ["dim"] * len(rows), priority=5),
    ]
    return table(f"{point.title}{_work(point)}", *columns, notes=_notes(point))


def _scale(least: float) -> units.Scale:
    """The unit in which the shortest time has two digits: naive ways take hundreds of times as long."""
    found = units.scale_for([least], "ns")
    shown = least / found.factor
    return units.Scale(found.factor, found.suffix, 0 if shown >= 100 or found.factor == 1 else 1 if shown >= 10 else 2)


def _status(row: BenchRow) -> Cell:
    return Cell(*_STATUS.get(row.status, ("– not here", "dim")))


def _error(row: BenchRow) -> str:
    """The worst output's error."""
    if not row.errors:
        return units.ABSENT
    if any(e.error is None for e in row.errors):
        return "not finite"
    return f"{max(e.error for e in row.errors if e.error is not None):.0e}"


def _timings(cache: str, timings: Sequence[Timing | None], scale: units.Scale) -> list[PageColumn]:
    spans = [scale.span(t.ns.low, t.ns.high) if t else units.ABSENT for t in timings]
    return [
        figures(cache, [t.ns.value if t else None for t in timings], "ns", scale=scale),
        PageColumn("95 % CI", tuple(Cell(s, "dim") for s in spans), scale.suffix, True, 1 if cache == "warm" else 3),
        _efficiency(timings),
    ]


def _efficiency(timings: Sequence[Timing | None]) -> PageColumn:
    """Shares of the roof; ! where one is above it, which cannot be true."""
    shares = [t.efficiency if t else None for t in timings]
    plain = figures("eff.", shares, "%", [efficiency_tone(s) for s in shares])
    flagged = tuple(
        Cell(f"!{c.text}" if s is not None and s > 1.05 else c.text, c.tone)
        for c, s in zip(plain.cells, shares, strict=True)
    )
    return PageColumn("eff.", flagged, "%")


def _speedup(ratio: Estimate | None) -> Cell:
    """Return how many times as fast as the other; ~ where the interval holds 1. A wrong way has none."""
    if ratio is None:
        return Cell(units.ABSENT)
    doubt = ratio.low <= 1.0 <= ratio.high
    tone = "dim" if doubt else "good" if ratio.value > 1 else "poor"
    return Cell(f"{'~' if doubt else ''}{ratio.value:.2f}×", tone)


def _bars(timings: Sequence[Timing | None]) -> list[str]:
    longest = max((t.ns.value for t in timings if t), default=0.0)
    return ["█" * max(1, round(t.ns.value / longest * _BAR)) if t else "" for t in timings]


def _work(point: BenchPoint) -> str:
    parts = [units.text(point.bytes, "B")] if point.bytes else []
    total = sum(point.flop.values())
    parts += [units.text(total, "FLOP")] if total else []
    return f" ({', '.join(parts)})" if parts else ""


def _notes(point: BenchPoint) -> list[str]:
    notes = [f"roof {cache}: {units.text(roof.ns, 'ns')}, {roof.ceiling}" for cache, roof in point.roofs.items()]
    notes = [f"{'; '.join(notes)}."] if notes else []
    shares = [t.efficiency for r in point.rows for t in (r.warm, r.cold) if t and t.efficiency]
    if any(share > 1.05 for share in shares):
        notes.append("! faster than its ceiling allows: the measurement or the model of its work is broken")
    return notes + [f"{r.label}: {r.reason}" for r in point.rows if r.reason]


def _sweep(bench: Bench) -> Iterator[Section]:
    """How fast time grows, time and efficiency against size; a table for each cache state, and one of what is wrong."""
    yield _growth(bench)
    for cache in _taken(bench):
        yield Section(table=_by_size(bench, cache))
    # A point where something is wrong or missing is shown in full.
    yield from (Section(table=_point(p)) for p in bench.points if any(r.reason for r in p.rows))


def _by_size(bench: Bench, cache: str) -> Table:
    """Times and efficiencies of all ways, a row for each point."""
    labels = list(dict.fromkeys(r.label for p in bench.points for r in p.rows))
    columns = [words("sizes", [p.title for p in bench.points], ["strong"] * len(bench.points), name=True)]
    for label in labels:
        rows = [next((r for r in p.rows if r.label == label), None) for p in bench.points]
        timings = [r.timing(cache) if r else None for r in rows]
        if any(timings):
            scale = _scale(min(t.ns.value for t in timings if t))
            columns.append(figures(label, [t.ns.value if t else None for t in timings], "ns", scale=scale))
            columns.append(_efficiency(timings))
    return table(f"By size, {cache} caches", *columns)


def _growth(bench: Bench) -> Section:
    drawn = [
        _figure(bench, cache, "time", "µs", lambda t: t.ns.value / 1e3, True) for cache in _taken(bench)
    ] + [
        _figure(bench, cache, "efficiency", "% of the measured ceiling", _percent, False) for cache in _taken(bench)
    ]  # fmt: skip
    fits = bench.scaling
    precisions = len({f.dtype for f in fits}) > 1
    growth = table(
        f"Time against {bench.sweep}: time ∝ size^e",
        words("way", [f"{f.way} {f.dtype}" if precisions else f.way for f in fits], ["strong"] * len(fits), name=True),
        PageColumn("e", tuple(Cell(f"{f.exponent:.2f}") for f in fits)),
        PageColumn("95 % CI", tuple(Cell(_interval(f.low, f.high), "dim") for f in fits)),
        figures("sizes", [f.points for f in fits], "count"),
        notes=[
            "Least squares on logarithms over all sizes; a wide interval says that one power does not describe them."
        ],
    )
    return Section(table=growth if fits else None, figures=[f for f in drawn if any(s.y for s in f.series)])


def _interval(low: float | None, high: float | None) -> str:
    return units.ABSENT if low is None or high is None else f"{low:.2f}–{high:.2f}"


def _taken(bench: Bench) -> list[str]:
    return [c for c in CACHES if any(r.timing(c) for p in bench.points for r in p.rows)]


def _percent(timing: Timing) -> float | None:
    return None if timing.efficiency is None else 100 * timing.efficiency


def _figure(
    bench: Bench, cache: str, what: str, unit: str, value: Callable[[Timing], float | None], log: bool
) -> Figure:
    name = bench.sweep.split(",")[0]
    several = len({p.dtype for p in bench.points}) > 1
    series: dict[str, Series] = {}
    for point in bench.points:
        for row in point.rows:
            timing = row.timing(cache)
            y = value(timing) if timing else None
            if timing and y is not None:
                label = f"{row.label} {point.dtype}" if several else row.label
                line = series.setdefault(label, Series(name=label, x=[], y=[]))
                line.x.append(float(point.sizes[name]))
                line.y.append(y)
                if what == "time":
                    line.low.append(timing.ns.low / 1e3)
                    line.high.append(timing.ns.high / 1e3)
    title = f"{bench.operation}: {what}, {cache} caches"
    return Figure(title=title, x=bench.sweep, y=unit, series=list(series.values()), log_x=True, log_y=log)
