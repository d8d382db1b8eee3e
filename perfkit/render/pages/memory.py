"""The owners of the memory as a page: the peak by kind and by owner, the course, fragmentation, and remedies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from perfkit import units
from perfkit.memory.results import DeviceMemory, MemoryKind, MemoryReport, Moment, Owner, Remedy
from perfkit.render.cells import Cell, PageColumn, Table, clean, figures, table, words
from perfkit.render.page import Item, Page, Section
from perfkit.render.pages.figures import Figure, Series

OWNERS = 12  # rows that text shows
_MOST = 300  # rows that the HTML has
_MIB = 2.0**20
_FAR = 4  # times the peak: what is reserved beyond that would leave no room for the areas
_HOW = {True: "by the program's own objects", False: "inferred"}


def page(report: MemoryReport) -> Page:
    """The devices one after another; of several the highest peak first, after a table of all."""
    devices = sorted(report.devices, key=lambda one: -one.peak.allocated)
    sections = [Section(table=_devices(devices))] if len(devices) > 1 else []
    for device in devices:
        sections += device_sections(device, _title(device, len(devices) > 1))
    if report.warnings:
        sections.append(Section(notes=[f"! {warning}" for warning in report.warnings]))
    return Page(
        title=f"{clean(report.title)}: who holds the memory",
        settings=[", ".join(dict.fromkeys(f"{clean(one.source)} {one.device}".strip() for one in devices[:8]))],
        verdict=[line for device in devices[:1] for line in verdict(device)],
        bad=any(device.failures for device in devices),
        sections=sections,
    )


def verdict(device: DeviceMemory) -> Iterator[str]:
    """The sentences about a device's memory."""
    for failure in device.failures[-1:]:
        left = "" if failure.device_free is None else f", the device had {size(failure.device_free)} left"
        reserved = "" if failure.reserved is None else f" of {size(failure.reserved)} reserved"
        where = f" at {clean(failure.where)}" if failure.where else ""
        yield (
            f"An allocation of {size(failure.bytes)} failed{where}: "
            f"{size(failure.allocated)}{reserved} were allocated{left}."
        )
    peak = device.peak
    if not peak.allocated:
        yield f"Nothing is allocated on {device.device}."
        return
    first = ", ".join(f"{part.kind} {share(part.bytes, peak.allocated)}" for part in peak.parts[:4])
    yield f"The peak of {device.device} is {size(peak.allocated)} allocated{_beside(peak)}: {first}."


def remedy_text(remedy: Remedy, peak: Moment) -> str:
    """The sentence of a remedy, with its saving."""
    saves = "" if remedy.saves is None else f" Saves {size(remedy.saves)} ({share(remedy.saves, peak.allocated)})."
    costs = "" if remedy.costs_ns is None else f" Adds {units.text(remedy.costs_ns, 'ns')} to a step."
    return f"{remedy.text}{saves}{costs}"


def device_sections(device: DeviceMemory, title: str, rows: int | None = None) -> Iterator[Section]:
    """The tables and figures of one device; of owners at most `rows`."""
    if device.peak.allocated:
        changes = [Item(remedy_text(remedy, device.peak)) for remedy in device.remedies]
        yield Section(table=parts_table(device, title), notes=[f"! {note}" for note in device.notes])
        yield Section(table=owners_table(device.peak, f"Owners at the peak{title}", rows))
        if changes:
            yield Section(title=f"What would lower the peak{title}", items=changes)
    elif device.notes:
        yield Section(notes=[f"! {note}" for note in device.notes])
    if device.course is not None and device.course.kinds and len(device.course.at) > 1:
        yield Section(figures=[_course(device, title)])


def parts_table(device: DeviceMemory, title: str = "") -> Table:
    """The peak and the end by kind, with how each is known; the last row is what the allocator says."""
    peak, end = device.peak, device.end
    last = {part.kind: part.bytes for part in end.parts} if end else {}
    held = {part.kind for part in peak.parts}
    rows = [*peak.parts, *(MemoryKind(kind=kind, bytes=0, count=0) for kind in last if kind not in held)]
    notes = list(_unused(device))
    return table(
        f"Who holds the peak{title}",
        words("kind", [*(part.kind for part in rows), "allocated"], name=True),
        figures("at the peak", [*(float(part.bytes) for part in rows), float(peak.allocated)], "iB"),
        figures("share", [*(part.bytes / peak.allocated for part in rows), 1.0], "%"),
        figures("pieces", [*(float(part.count) for part in rows), None], "count", priority=2),
        figures("at the end", [*(float(last.get(p.kind, 0)) for p in rows), float(end.allocated)] if end else [], "iB")
        if end
        else PageColumn("at the end", tuple(Cell("") for _ in range(len(rows) + 1))),
        words("known", [*(_how(part.known_bytes, part.bytes, part.kind) for part in rows), ""], priority=1),
        notes=notes,
        total=True,
    )


def _how(known: int, all_of: int, kind: str) -> str:
    if kind == "unknown" or not all_of:
        return ""
    return _HOW[known == all_of] if known in (0, all_of) else f"{known / all_of:.0%} {_HOW[True]}"


def _unused(device: DeviceMemory) -> Iterator[str]:
    unused, end = device.unused, device.end
    if unused is None or end is None or end.reserved is None:
        return
    pieces = units.many(unused.blocks, "piece")
    yield (
        f"At the end {size(end.reserved)} are reserved: {size(end.allocated)} allocated, {size(unused.free)} free in "
        f"{pieces} (the largest {size(unused.largest)})"
        + (f", {size(unused.pending)} freed and still in use by a stream." if unused.pending else ".")
    )


def owners_table(moment: Moment, title: str, limit: int | None = None) -> Table:
    """The largest owners: names where the program's objects gave them, and lines."""
    rows = moment.owners[: limit or _MOST]
    return table(
        title,
        words("owner", _names(rows), name=True),
        words("kind", [owner.kind for owner in rows]),
        figures("size", [float(owner.bytes) for owner in rows], "iB"),
        figures("share", [owner.bytes / max(moment.allocated, 1) for owner in rows], "%"),
        figures("pieces", [float(owner.count) for owner in rows], "count", priority=2),
        words("line", [line(owner) or owner.function for owner in rows], priority=1, least=24),
        in_text=OWNERS,
    )


def _names(rows: Sequence[Owner]) -> list[str]:
    """The names of owners; of those of one name and kind with what allocated."""
    alike = Counter((owner.kind, owner.name) for owner in rows)
    return [
        f"{owner.name}: {owner.function}"
        if owner.name and owner.function and alike[owner.kind, owner.name] > 1
        else _name(owner)
        for owner in rows
    ]


def _name(owner: Owner) -> str:
    return owner.name or owner.function or line(owner) or "unknown"


def line(owner: Owner) -> str:
    """The line of an owner with the last two parts of its path; "" where it is unknown."""
    short = "/".join(owner.file.replace("\\", "/").split("/")[-2:])
    return f"{short}:{owner.line}" if short else ""


def _devices(devices: list[DeviceMemory]) -> Table:
    kinds = list(dict.fromkeys(part.kind for device in devices for part in device.peak.parts))
    held = [{part.kind: float(part.bytes) for part in device.peak.parts} for device in devices]
    return table(
        "Devices",
        words("device", [f"{device.source} {device.device}".strip() for device in devices], name=True),
        figures("peak", [float(device.peak.allocated) for device in devices], "iB"),
        figures("reserved", [_float(device.peak.reserved) for device in devices], "iB"),
        *(figures(kind, [one.get(kind, 0.0) for one in held], "iB", priority=1 + n) for n, kind in enumerate(kinds)),
    )


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


def _course(device: DeviceMemory, title: str) -> Figure:
    course = device.course
    assert course is not None
    series = [Series(name=kind, x=course.at, y=_mib(held), line="stack") for kind, held in course.kinds.items()]
    if course.reserved and max(course.reserved) < _FAR * device.peak.allocated:
        series.append(Series(name="reserved", x=course.at, y=_mib(course.reserved), line="dash"))
    return Figure(title=f"Memory over time{title}", x="ms" if course.timed else "event", y="MiB", series=series)


def _mib(values: list[int]) -> list[float]:
    return [round(value / _MIB, 3) for value in values]


def _title(device: DeviceMemory, several: bool) -> str:
    return f": {device.source} {device.device}" if several else ""


def _beside(moment: Moment) -> str:
    return "" if moment.reserved is None else f" ({size(moment.reserved)} reserved)"


def size(value: float) -> str:
    """Bytes as text."""
    return units.text(float(value), "iB")


def share(part: float, whole: float) -> str:
    """A share as text."""
    return units.text(part / whole if whole else None, "%")
