"""Two reports side by side: the time of each pass, family, operator and kernel in both.

Plain differences of times, without an interval: whether one is more than noise, these numbers do not say.
`perfkit.compare.judge` builds on them, and does.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perfkit.analysis.line_results import LineTime
from perfkit.analysis.results import BackendReport, Group, Report


class PartChange(msgspec.Struct, frozen=True, kw_only=True):
    """A part in both reports: time a step (ns), calls a step and efficiency; None where it does not occur."""

    key: str
    shapes: str = ""
    family: str = ""
    first_ns: float | None = None
    second_ns: float | None = None
    difference_ns: float = 0.0  # second − first, what is absent counting as no time
    ratio: float | None = None  # second / first, where both are
    first_count: float | None = None
    second_count: float | None = None
    first_efficiency: float | None = None
    second_efficiency: float | None = None


class Difference(msgspec.Struct, kw_only=True):
    """All parts of two reports, the largest difference first; `total` is their kernel time.

    `notes` are sentences that say why the two may not be comparable.
    """

    total: PartChange
    passes: list[PartChange]
    families: list[PartChange]
    operators: list[PartChange]
    kernels: list[PartChange]
    lines: list[PartChange] = []  # source lines, by the host's time
    notes: list[str] = []


def difference(first: Report, second: Report, backends: tuple[str, str]) -> Difference:
    """From `backends[0]` of `first` to `backends[1]` of `second`. Raises `KeyError` for a backend that is not there."""
    a, b = _backend(first, backends[0]), _backend(second, backends[1])
    return Difference(
        total=_change("kernel time", [_whole(a)], [_whole(b)]),
        passes=_changes(a.passes, b.passes),
        families=_changes(a.families, b.families),
        operators=_changes(a.operators, b.operators),
        kernels=_changes(a.kernels, b.kernels),
        lines=_lines(a.lines, b.lines),
        notes=_notes(first, second, a, b),
    )


def _backend(report: Report, name: str) -> BackendReport:
    found = next((b for b in report.backends if b.name == name), None)
    if found is None:
        raise KeyError(name)
    return found


def _whole(backend: BackendReport) -> Group:
    count = sum(g.count for g in backend.families)
    return Group(key="", count=count, time_ns=backend.kernel_ns, share=1.0, efficiency=backend.efficiency)


def _changes(first: Sequence[Group], second: Sequence[Group]) -> list[PartChange]:
    one, other = _by_key(first), _by_key(second)
    keys = dict.fromkeys([*one, *other])
    changes = [_change(key[0], one.get(key, []), other.get(key, [])) for key in keys]
    return sorted(changes, key=lambda c: -abs(c.difference_ns))


def _lines(first: Sequence[LineTime], second: Sequence[LineTime]) -> list[PartChange]:
    """Lines by file, function and text: the number of a line changes with what is written above it."""
    if not (first and second):
        return []
    one, other = _by_text(first), _by_text(second)
    found = []
    for key in dict.fromkeys([*one, *other]):
        before, after = one.get(key, []), other.get(key, [])
        ns, later = (sum(line.host_ns for line in lines) if lines else None for lines in (before, after))
        example = (after or before)[0]
        found.append(
            PartChange(
                key=f"{example.file}{f':{example.line}' if example.line else ''} in {example.function}",
                shapes=example.code,
                first_ns=ns,
                second_ns=later,
                difference_ns=(later or 0.0) - (ns or 0.0),
                ratio=later / ns if ns and later is not None else None,
            )
        )
    return sorted(found, key=lambda c: -abs(c.difference_ns))


def _by_text(lines: Sequence[LineTime]) -> dict[tuple[str, str, str], list[LineTime]]:
    found: dict[tuple[str, str, str], list[LineTime]] = {}
    for line in lines:
        found.setdefault((line.file, line.function, line.code or str(line.line)), []).append(line)
    return found


def _by_key(groups: Sequence[Group]) -> dict[tuple[str, str], list[Group]]:
    """Groups by name and shapes: kernels of different templates may share both."""
    found: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        found.setdefault((group.key, group.shapes), []).append(group)
    return found


def _change(key: str, first: list[Group], second: list[Group]) -> PartChange:
    example = (first or second)[0]
    before, after = _time(first), _time(second)
    return PartChange(
        key=key,
        shapes=example.shapes,
        family=example.family,
        first_ns=before,
        second_ns=after,
        difference_ns=(after or 0.0) - (before or 0.0),
        ratio=after / before if before and after is not None else None,
        first_count=_count(first),
        second_count=_count(second),
        first_efficiency=_efficiency(first),
        second_efficiency=_efficiency(second),
    )


def _time(groups: list[Group]) -> float | None:
    return sum(g.time_ns for g in groups) if groups else None


def _count(groups: list[Group]) -> float | None:
    return sum(g.count for g in groups) if groups else None


def _efficiency(groups: list[Group]) -> float | None:
    """A ratio of sums over the groups that are judged."""
    if len(groups) == 1:
        return groups[0].efficiency
    judged = sum(g.judged_ns for g in groups)
    return sum(g.roof_ns or 0.0 for g in groups) / judged if judged else None


def _notes(first: Report, second: Report, a: BackendReport, b: BackendReport) -> list[str]:
    found = []
    if a.per != b.per:
        found.append(f"times of the first are of a {a.per}, those of the second of a {b.per}")
    if a.device != b.device:
        found.append(f"the first ran on {_device(a)}, the second on {_device(b)}")
    for name in ("workload", "preset", "dtype", "device", "batch_size", "sequence_length", "training", "optimizer"):
        one, other = getattr(first.settings, name, None), getattr(second.settings, name, None)
        if first.settings and second.settings and one != other:
            found.append(f"{name.replace('_', ' ')} differs: {one} in the first, {other} in the second")
    for which, backend in (("first", a), ("second", b)):
        if backend.status in ("wrong", "failed"):
            found.append(f"the {which} ({backend.name}) is {backend.status}: its times measure another computation")
    return found


def _device(backend: BackendReport) -> str:
    return {"cuda": "a GPU", "cpu": "a CPU"}.get(backend.device, "an unknown device")
