"""A sweep as a page: a row for each run, plots against size, and how fast the cost grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perfkit import units
from perfkit.analysis.sweep import STEPS, Growth, Sweep, SweepBackend, cost_ns, lines, scaling
from perfkit.render.cells import Cell, PageColumn, Table, clean, figures, table, words
from perfkit.render.page import Page, Section
from perfkit.render.pages.figures import Figure, Series
from perfkit.render.tables import spread

_STATUS = {"ok": ("✓ correct", "good"), "wrong": ("✗ wrong", "bad"), "failed": ("✗ failed", "bad")}

_TIME = ("step time", "time of all steps")

_OF_TOKENS: dict[str, Callable[[SweepBackend], float | None]] = {
    "time to the first token": lambda m: m.first_token_ns,
    "time of a further token": lambda m: m.token_ns,
}

_VAGUE = 1.0  # an interval of the exponent that is wider says nothing: it holds "not at all" and "in proportion"


def page(sweep: Sweep) -> Page:
    """Tables and plots of the whole sweep."""
    names = list(dict.fromkeys(m.name for p in sweep.points for m in p.members))
    sections = [Section(table=_published(sweep))] if len(names) > 1 or _several(sweep) else []
    sections += [Section(table=_of_backend(sweep, name)) for name in names]
    sections += [Section(table=_growth(sweep))] if sweep.growth else []
    sections += [Section(figures=list(_figures(sweep, axis))) for axis in sweep.numeric if len(sweep.axes[axis]) > 1]
    axes = [f"{name} {', '.join(values)}" for name, values in sweep.axes.items()]
    return Page(
        title=f"{clean(sweep.title)}: sweep over {' and '.join(sweep.axes) or 'nothing'}",
        settings=[*axes, *filter(None, [sweep.device])],
        verdict=list(_verdict(sweep)),
        bad=bool(sweep.bad),
        sections=sections,
    )


def _verdict(sweep: Sweep) -> Iterator[str]:
    for point, member in sweep.bad:
        if member.unusable:
            yield f"{member.name}'s profile is unusable at {_words(point.values)}: {member.unusable}"
        else:
            yield f"{member.name} is {member.status} at {_words(point.values)}: {member.reason}"
    vague = 0
    for growth in sweep.growth:
        if growth.low is None or growth.high is None:
            continue
        if growth.high - growth.low > _VAGUE:
            vague += 1
            continue
        yield (
            f"{_line(growth.backend, growth.others)}: {_whose(growth.axis)} time grows as "
            f"{growth.axis}^{growth.exponent:.2f} "
            f"(95 % interval {growth.low:.2f} to {growth.high:.2f}, {growth.points} sizes)."
        )
    if vague:
        yield (
            f"How fast the time grows is not shown by {vague} of {len(sweep.growth)} lines: the exponent's 95 % "
            "interval is too wide. More sizes, more steps or a quieter machine narrow it."
        )


def _whose(axis: str) -> str:
    return "all steps'" if axis == STEPS else "a step's"


def _several(sweep: Sweep) -> bool:
    return any(p.devices > 1 for p in sweep.points)


def _published(sweep: Sweep) -> Table:
    """The table that people publish: a row for each backend and number of devices."""
    rows = [(p, m) for p in sweep.points for m in p.members]
    steps = [m.step for _, m in rows]
    scale = units.scale_for([s.value for s in steps if s], "ns")
    rates = [m.samples_per_second for _, m in rows]
    others = [{k: v for k, v in p.values.items() if k not in ("ranks", "parallel")} for p, _ in rows]
    varied = [words("run", [_words(o) for o in others])] if any(others) else []
    several = _several(sweep)
    ways = [words("shared by", [p.parallel for p, _ in rows])] if several else []
    shares = [scaling(sweep, p, m) for p, m in rows]
    scaled = [figures("scaling", shares, "%")] if several else []
    notes = ["Memory is the peak of one device, the one that takes most."] + [
        "Scaling: samples a second and device, of those on the fewest devices."
    ] * several
    return table(
        "Backends and devices",
        words("backend", [m.name for _, m in rows], ["strong"] * len(rows), name=True),
        *varied,
        figures("devices", [p.devices for p, _ in rows], "count"),
        *ways,
        PageColumn(
            "result", tuple(Cell(*_STATUS.get(m.status, (f"– {m.status}", "dim"))) for _, m in rows), numeric=False
        ),
        figures("a step", [s.value if s else None for s in steps], "ns", scale=scale),
        spread("95 % CI", steps, scale, priority=2),
        figures(f"{sweep.sample_name}/s", rates, "count"),
        *scaled,
        figures("MFU", [m.mfu for _, m in rows], "%", priority=1),
        figures("memory", [m.peak_memory_bytes for _, m in rows], "B"),
        notes=notes,
    )


def _of_backend(sweep: Sweep, name: str) -> Table:
    """One backend: a row for each run."""
    found = [(p, next((m for m in p.members if m.name == name), None)) for p in sweep.points]
    rows = [(p, m) for p, m in found if m is not None]
    members = [m for _, m in rows]
    scale = units.scale_for([m.step.value for m in members if m.step], "ns")
    notes = [f"{_words(p.values)}: {m.reason}" for p, m in rows if m.reason]
    return table(
        name,
        words("run", [_words(p.values) for p, _ in rows], ["strong"] * len(rows), name=True),
        PageColumn(
            "result", tuple(Cell(*_STATUS.get(m.status, (f"– {m.status}", "dim"))) for m in members), numeric=False
        ),
        figures("step", [m.step.value if m.step else None for m in members], "ns", scale=scale),
        spread("95 % CI", [m.step for m in members], scale),
        figures(f"{sweep.sample_name}/s", [m.samples_per_second for m in members], "count"),
        PageColumn("speed-up", tuple(_speedup(m) for m in members), "×"),
        figures("MFU", [m.mfu for m in members], "%"),
        figures("eff.", [m.efficiency for m in members], "%"),
        figures("memory", [m.peak_memory_bytes for m in members], "B"),
        *_tokens(members),
        notes=notes,
    )


def _tokens(members: list[SweepBackend]) -> list[PageColumn]:
    """When the tokens come, of runs that generate some."""
    if not any(m.first_token_ns for m in members):
        return []
    return [
        figures("first token", [m.first_token_ns for m in members], "ns"),
        figures("a token", [m.token_ns for m in members], "ns"),
        figures("of its roof", [m.token_efficiency for m in members], "%"),
    ]


def _speedup(member: SweepBackend) -> Cell:
    if member.speedup is None:
        return Cell(units.ABSENT)
    return Cell(f"{member.speedup.value:.2f}")


def _growth(sweep: Sweep) -> Table:
    rows = sweep.growth
    intervals = [_interval(g) for g in rows]
    # Two sizes have no interval; where no line has one, there is no column of them.
    known = any(text != units.ABSENT for text in intervals)
    wide = "; a wide interval says that one power does not describe all sizes" if known else ""
    return table(
        "How the time of a step (along steps: of all steps) grows: time ∝ size^e",
        words("backend", [_line(g.backend, g.others) for g in rows], ["strong"] * len(rows), name=True),
        words("size", [g.axis for g in rows]),
        PageColumn("e", tuple(Cell(f"{g.exponent:.2f}") for g in rows)),
        PageColumn("95 % CI", tuple(Cell(text, "dim") for text in intervals)),
        figures("sizes", [g.points for g in rows], "count"),
        notes=[f"Least squares on logarithms{wide}."],
    )


def _interval(growth: Growth) -> str:
    known = growth.low is not None and growth.high is not None
    return f"{growth.low:.2f} to {growth.high:.2f}" if known else units.ABSENT


def _figures(sweep: Sweep, axis: str) -> Iterator[Figure]:
    """Time, throughput and efficiency against one size."""
    yield _figure(sweep, axis, _TIME[axis == STEPS], "ms", lambda m: _ms(cost_ns(m, axis)), True)
    yield _figure(sweep, axis, "throughput", f"{sweep.sample_name}/s", lambda m: m.samples_per_second, True)
    for what, value in _OF_TOKENS.items():
        figure = _figure(sweep, axis, what, "ms", lambda m, value=value: _ms(value(m)), True)  # type: ignore[misc]
        if any(s.y for s in figure.series):
            yield figure
    efficiency = _figure(sweep, axis, "efficiency", "% of the ceilings", _percent, False)
    if any(s.y for s in efficiency.series):
        yield efficiency


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


def _percent(member: SweepBackend) -> float | None:
    return None if member.efficiency is None else 100 * member.efficiency


def _figure(
    sweep: Sweep, axis: str, what: str, unit: str, value: Callable[[SweepBackend], float | None], log: bool
) -> Figure:
    series = []
    for name, others, members in lines(sweep, axis):
        shown = [(size, y, m) for size, m in members if (y := value(m)) is not None]
        line = Series(name=_line(name, others), x=[s for s, _, _ in shown], y=[y for _, y, _ in shown])
        if what == _TIME[False]:
            line.low = [m.step.low / 1e6 for _, _, m in shown if m.step]
            line.high = [m.step.high / 1e6 for _, _, m in shown if m.step]
        series.append(line)
    sizes = sorted({x for s in series for x in s.x})
    return Figure(title=f"{what} against {axis}", x=axis, y=unit, series=series, log_x=True, log_y=log, x_ticks=sizes)


def _line(backend: str, others: dict[str, str]) -> str:
    return f"{backend} ({_words(others)})" if others else backend


def _words(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "as set"
