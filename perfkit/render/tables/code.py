"""The hottest instructions and lines of a kernel as tables, and those that changed between two reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perfkit import units
from perfkit.instructions.courses import parts, said, shown
from perfkit.instructions.results import HotKernel, HotSpot, KernelCode
from perfkit.render.cells import Table, clean, figures, table, words
from perfkit.render.textplot import sparkline

SHOWN = 10
_EXCESS = 1.05  # times the least sectors: below, the two are the same
BOUND = (
    "Share: of the samples of warps in the kernel's longest launch. A sample at an instruction counts the wait for its "
    'inputs; "waits for" is the load that they come from, a barrier, or the last store. "Saves" is at most, where no '
    "warp waits there any more."
)


def hot_tables(kernel: HotKernel, rows: int | None) -> Iterable[Table]:
    """The lines of a kernel where several are known, and its instructions."""
    name = clean(kernel.kernel, 60)
    several = len(kernel.lines) > 1
    if several:
        yield _table(f"Hottest lines of {name}", "line", kernel.lines[:rows], kernel.notes)
    if kernel.instructions:
        notes = [] if several else kernel.notes
        yield _table(f"Hottest instructions of {name}", "at", kernel.instructions[:rows], notes)


def _table(title: str, head: str, spots: Sequence[HotSpot], notes: Sequence[str]) -> Table:
    wasteful = any(map(_excessive, spots))
    sectors = [s.sectors_per_request if wasteful else None for s in spots]
    ideal = [s.ideal_sectors_per_request if wasteful else None for s in spots]
    return table(
        title,
        words(head, [spot.where for spot in spots], name=True),
        figures("share", [spot.share for spot in spots], "%"),
        words("state", [state(spot) for spot in spots], least=14),
        words("waits for", [spot.waits_for for spot in spots], priority=1, least=12),
        figures("sectors a request", sectors, "", priority=1),
        figures("at best", ideal, "", priority=1),
        figures("bank conflicts", [spot.conflicts or None for spot in spots], "%", priority=1),
        figures("threads off", [spot.threads_off or None for spot in spots], "%", priority=3),
        figures("saves", [spot.saving_ns for spot in spots], "ns"),
        words("code", [spot.code or spot.ptx or spot.sass for spot in spots], priority=2, least=20),
        words("because", [spot.why for spot in spots], priority=4, least=16),
        notes=[*notes, BOUND],
    )


def life_table(code: KernelCode) -> Table | None:
    """How busy units are over the life of a kernel; None where the report was not sampled over time."""
    if not code.duration_ns:
        return None
    courses = [
        (course, means) for course, means in zip(shown(code), parts(code), strict=True) if max(course.values) > 0
    ]
    if not courses:
        return None
    tick = units.text(courses[0][0].interval_ns, "ns")
    return table(
        f"Over the life of {clean(code.name, 60)}",
        words("busy", [course.name for course, _ in courses], name=True),
        words("over time", [sparkline(course.values, low=0.0) for course, _ in courses]),
        figures("first 10 %", [_share(means.first) for _, means in courses], "%"),
        figures("middle", [_share(means.middle) for _, means in courses], "%"),
        figures("last 10 %", [_share(means.last) for _, means in courses], "%"),
        notes=[
            *said(code),
            "Per cent of the peak, drawn from zero; multiprocessors: of the most at any time. A sample every "
            f"{tick}, in another pass than the counters.",
        ],
    )


def _share(value: float | None) -> float | None:
    return None if value is None else value / 100


def _excessive(spot: HotSpot) -> bool:
    """Return whether a spot moves more sectors than it has to."""
    sectors, ideal = spot.sectors_per_request, spot.ideal_sectors_per_request
    return bool(sectors and ideal and sectors > _EXCESS * ideal)


def state(spot: HotSpot) -> str:
    """Return the state in which its warps were found most, in NVIDIA's words: "long scoreboard 97%"."""
    reason, share = spot.reasons[0] if spot.reasons else ("", 0.0)
    return f"{reason.replace('_', ' ')} {share:.0%}" if reason else ""
