"""The regions of a kernel (`perfkit/profile.cuh`, Proton) as a page: sums, multiprocessors, and both over time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from perfkit import units
from perfkit.analysis.words import percent
from perfkit.instructions.regions import COARSE, NS, LongestLaunch, Records
from perfkit.render.cells import Table, clean, figures, table, words
from perfkit.render.page import Page, Section
from perfkit.render.pages.figures import Figure, Series
from perfkit.render.textplot import sparkline

SHOWN = 10
_BINS, _COLUMNS = 160, 24
_SERIES = 7  # regions with a colour of their own
_UNEVEN = 0.1  # of a region's mean over multiprocessors: a longer one is said


def page(path: str, launch: LongestLaunch, records: Records, rows: int | None = SHOWN) -> Page:
    """Return the page of a launch; tables have at most `rows` rows."""
    return Page(
        title=f"Regions of a kernel in {clean(path, 80)}",
        verdict=_verdict(launch),
        sections=[
            Section(table=_regions(launch, records, rows)),
            Section(table=_multiprocessors(launch, rows)),
            Section(figures=[_over_time(launch, records), _by_multiprocessor(launch, records)]),
        ],
        warnings=_warnings(launch),
    )


def record(path: str, launch: LongestLaunch) -> dict[str, object]:
    """Return the regions as plain data for JSON."""
    return {"source": path, **msgspec.to_builtins(launch)}


def _verdict(launch: LongestLaunch) -> list[str]:
    first = launch.regions[0]
    several = f", the longest of {launch.launches} launches" if launch.launches > 1 else ""
    of_all = f" of {launch.multiprocessors}" if launch.multiprocessors else ""
    used = f"on {len(launch.by_sm)}{of_all} multiprocessors"
    whose = f"The regions of {clean(launch.kernel, 80)}" if launch.kernel else "The regions"
    spans = f"span {units.text(launch.span_ns, NS)}" if launch.unit == NS else "are"
    said = [
        f"{whose} {spans} {used}{several}.",
        f"{first.name} takes most of the warps' time in regions: {percent(first.share)}.",
    ]
    uneven = [one for one in launch.regions if one.most_ns > (1 + _UNEVEN) * one.sm_ns]
    if uneven:
        worst = max(uneven, key=lambda one: one.most_ns - one.sm_ns)
        most, mean = units.text(worst.most_ns, launch.unit), units.text(worst.sm_ns, launch.unit)
        said.append(
            f"{worst.name} is uneven: multiprocessor {worst.most_sm} is in it for {most}, the average one for {mean}."
        )
    if launch.idle_tail >= _UNEVEN:
        said.append(
            f"Multiprocessors wait for the last one to end: {percent(launch.idle_tail)} of their time is after their "
            "last region. Even work would save that at most."
        )
    return said


def _warnings(launch: LongestLaunch) -> list[str]:
    made = []
    if launch.unit != NS:
        made.append(
            "Lengths are cycles, which Proton writes as if each took 1 ns; when a block begins is in ns. Over time a "
            "cycle counts as 1 ns: blocks that follow each other on a multiprocessor overlap there."
        )
    if launch.lost:
        made.append(
            f"{launch.lost} records of regions did not fit the buffer: sums are of the others. Compile with a larger "
            "-DPERFKIT_RECORDS, or record fewer regions."
        )
    if launch.span_ns and launch.tick_ns > COARSE * launch.span_ns:
        made.append(
            f"The GPU's timer ticks every {units.text(launch.tick_ns, 'ns')}, as far as these records show: times of "
            f"so short a kernel are known within {percent(launch.tick_ns / launch.span_ns)}."
        )
    return made


def _regions(launch: LongestLaunch, records: Records, rows: int | None) -> Table:
    regions, edges = launch.regions[:rows], np.linspace(0, launch.span_ns or 1.0, _COLUMNS + 1)
    courses = [_warps(records, records.name == one.name, edges) for one in regions]
    return table(
        "Regions by the time of their warps",
        words("region", [one.name for one in regions], name=True),
        words("records", [str(one.records) for one in regions]),
        figures("warp time", [one.warp_ns for one in regions], launch.unit),
        figures("share", [one.share for one in regions], "%"),
        figures("a record", [one.mean_ns for one in regions], launch.unit),
        figures("a multiprocessor", [one.sm_ns for one in regions], launch.unit),
        figures("least", [one.least_ns for one in regions], launch.unit, priority=1),
        figures("most", [one.most_ns for one in regions], launch.unit, priority=1),
        words("its warps over time", [sparkline(one, _COLUMNS, 0.0) for one in courses], priority=1),
        notes=[
            "Warp time is summed over warps. The other times are of a multiprocessor: how long any of its warps is in "
            "the region. A region around others contains theirs."
        ],
    )


def _multiprocessors(launch: LongestLaunch, rows: int | None) -> Table:
    by_end = launch.unit == NS
    found = launch.by_sm if by_end else sorted(launch.by_sm, key=lambda one: -one.busy_ns)
    shown = found[:rows]
    ends = [figures("end", [one.end_ns for one in shown], NS)] if by_end else []
    return table(
        f"Multiprocessors, {'the last to end' if ends else 'the busiest'} first",
        words("multiprocessor", [str(one.sm) for one in shown], name=True),
        words("blocks", [str(one.blocks) for one in shown]),
        words("warps", [str(one.warps) for one in shown]),
        figures("first region", [one.begin_ns for one in shown], "ns"),
        *ends,
        figures("in regions", [one.busy_ns for one in shown], launch.unit),
        notes=[f"{len(shown)} of {len(found)}."] if len(shown) < len(found) else [],
    )


def _over_time(launch: LongestLaunch, records: Records) -> Figure:
    """Warps in each region, on average over each of `_BINS` parts of the launch."""
    edges = np.linspace(0, launch.span_ns or 1.0, _BINS + 1)
    middle = ((edges[:-1] + edges[1:]) / 2e3).round(4).tolist()
    own = [one.name for one in launch.regions[:_SERIES]]
    series = []
    for name in own:
        chosen = records.name == name
        series.append(Series(name=name, x=middle, y=_warps(records, chosen, edges), line="stack"))
    others = ~np.isin(records.name, own)
    if others.any():
        series.append(Series(name="others", x=middle, y=_warps(records, others, edges), line="stack"))
    return Figure(
        title="Warps by region over time",
        x="µs" if launch.unit == NS else "µs, a cycle as 1 ns",
        y="warps",
        series=series,
    )


def _warps(records: Records, chosen: np.ndarray, edges: np.ndarray) -> list[float]:
    """The number of chosen records that cover each part, on average over it."""
    begin, end = np.sort(records.begin_ns[chosen]), np.sort(records.end_ns[chosen])
    before = _covered(begin, edges) - _covered(end, edges)
    return (np.diff(before) / np.diff(edges)).round(3).tolist()  # type: ignore[no-any-return]


def _covered(moments: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return for each edge the time since the moments before it, summed."""
    count = np.searchsorted(moments, edges)
    total = np.concatenate([[0.0], np.cumsum(moments)])
    return count * edges - total[count]  # type: ignore[no-any-return]


def _by_multiprocessor(launch: LongestLaunch, records: Records) -> Figure:
    """The end of each multiprocessor, and its warps' time in each region, a warp."""
    ordered = sorted(launch.by_sm, key=lambda one: one.sm)
    x = [float(one.sm) for one in ordered]
    warps = {one.sm: one.warps for one in ordered}
    series = [Series(name="end", x=x, y=[one.end_ns / 1e3 for one in ordered], line="points")]
    series = series if launch.unit == NS else []
    length = records.end_ns - records.begin_ns
    for region in launch.regions[:_SERIES]:
        sums = np.bincount(records.sm, weights=np.where(records.name == region.name, length, 0.0))
        y = [float(sums[one.sm]) / warps[one.sm] / 1e3 for one in ordered]
        series.append(Series(name=region.name, x=x, y=y, line="points"))
    return Figure(
        title="Time of a warp by multiprocessor",
        x="multiprocessor",
        y="µs" if launch.unit == NS else "1,000 cycles",
        series=series,
    )


def trace(records: Records) -> bytes:
    """A trace for Perfetto: a process a multiprocessor, a thread a warp of a block, times in µs."""
    columns = (
        records.name.tolist(), records.sm.tolist(), records.block.tolist(), records.warp.tolist(),
        records.begin_ns.tolist(), records.end_ns.tolist(),
    )  # fmt: skip
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": sm, "args": {"name": f"multiprocessor {sm}"}}
        for sm in np.unique(records.sm).tolist()
    ]
    for name, sm, block, warp, begin, end in zip(*columns, strict=True):
        span = {"ts": round(begin / 1e3, 4), "dur": round((end - begin) / 1e3, 4)}
        place = {"pid": sm, "tid": block * 64 + warp, "args": {"block": block, "warp": warp}}
        events.append({"ph": "X", "name": name, **span, **place})
    return msgspec.json.encode({"traceEvents": events})


def is_trace(out: Path) -> bool:
    """Return whether a file of this name is to be a trace; else it is a page."""
    return out.suffix == ".json"
