"""The points and lines of the roofline chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from perfkit.analysis.report.aggregate import LabelledRows
from perfkit.analysis.results import Group
from perfkit.analysis.roofline.roof import Integers, rate_of
from perfkit.analysis.roofline_results import RoofLine, RooflinePoint
from perfkit.numbers import first_rows
from perfkit.table import RESOURCES

if TYPE_CHECKING:
    from perfkit.hardware.ceilings import Ceilings


def points(rows: LabelledRows, kernels: Sequence[Group], kernel_code: Integers) -> list[RooflinePoint]:
    """One point a kind of kernel call that computes and moves data; `kernel_code` is each row's index in `kernels`."""
    example = first_rows(kernel_code, len(kernels))
    return [_point(group, int(rows.judged.resource[example[i]])) for i, group in enumerate(kernels) if _drawn(group)]


def _drawn(group: Group) -> bool:
    """Return whether it has a place in the chart: what is too small to judge does not."""
    return bool(group.intensity and group.flop_rate) and group.withheld_ns < group.time_ns


def _point(group: Group, resource: int) -> RooflinePoint:
    return RooflinePoint(
        label=f"{group.key} {group.shapes}".strip(),
        family=group.family,
        pass_=", ".join(group.passes),
        intensity=group.intensity or 0.0,
        flop_rate=group.flop_rate or 0.0,
        time_ns=group.time_ns,
        count=group.count,
        efficiency=group.efficiency,
        resource=RESOURCES[resource] if resource >= 0 else "",
        ceiling=group.ceiling,
    )


def roofs(
    ceilings: Ceilings | None, maximum: Mapping[str, float] | None = None, drawn: Iterable[RooflinePoint] = ()
) -> list[RoofLine]:
    """The lines: the bandwidth of each level of memory at its best, and every arithmetic unit that is known.

    `maximum` are the same ceilings at the device's maximum clocks, by resource. `drawn` are points that these ceilings
    judge: their units get the datasheet's line where that is what judges them.
    """
    if ceilings is None:
        return []
    judging = [resource for resource in RESOURCES if resource in {point.resource for point in drawn}]
    return [
        msgspec.structs.replace(
            roof,
            maximum=(maximum or {}).get(resource),
            datasheet=None if ceilings.on_paper else ceilings.datasheet.get(resource),
        )
        for resource, roof in [*_bandwidths(ceilings), *_rates(ceilings), *_unmeasured(ceilings, judging)]
    ]


def _bandwidths(ceilings: Ceilings) -> list[tuple[str, RoofLine]]:
    best: dict[str, tuple[float, float]] = {}
    for size, rate in ceilings.envelope():
        level = ceilings.level_of(size)
        if rate > best.get(level, (0.0, 0.0))[1]:
            best[level] = (size, rate)
    if ceilings.bandwidth:  # main memory is what the largest working set saw, however large the caches
        largest = max(size for size, _ in ceilings.bandwidth)
        best["memory"] = (largest, ceilings.dram_bandwidth)
    words = {"memory": "device memory" if ceilings.device.startswith("cuda") else "main memory"}
    return [
        (
            level,
            RoofLine(
                label=f"{words.get(level, level)} bandwidth",
                kind="bandwidth",
                value=rate,
                resource="memory",
                working_set=size,
            ),
        )
        for level, (size, rate) in best.items()
    ]


def _rates(ceilings: Ceilings) -> list[tuple[str, RoofLine]]:
    return [
        (resource, RoofLine(label=rate_of(resource, ceilings)[1], kind="compute", value=rate, resource=resource))
        for resource, rate in ceilings.compute.items()
        if rate
    ]


def _unmeasured(ceilings: Ceilings, resources: Iterable[str]) -> list[tuple[str, RoofLine]]:
    rates = [(resource, *rate_of(resource, ceilings)) for resource in resources if not ceilings.compute.get(resource)]
    return [
        (resource, RoofLine(label=told, kind="compute", value=rate, resource=resource))
        for resource, rate, told in rates
        if rate
    ]
