"""Rows of a profile of XLA: kernels and copies of GPUs, or the operations that ran on the CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfkit.profile_names import STEP
from perfkit.readers.gpu_lists import FILL, KERNEL, Listed, whole
from perfkit.readers.nsys.activity import PROCESS_BITS, CudaCalls
from perfkit.readers.nsys.database import Integers
from perfkit.readers.nsys.ranges import Ranges
from perfkit.readers.xla.profile import Event, Stats, XlaLine, XlaProfile

PROCESS = 1 << PROCESS_BITS  # a profile is of one process; its threads are numbered in it
_STREAM = re.compile(r"#(\d{1,9})")
_GPU = re.compile(r"/device:GPU:(\d{1,4})")
_MOST_REGISTERS = 1024  # of a thread: profiles of AMD GPUs may hold addresses in their place
_COPY = re.compile(r"(?:Memcpy|Copy)(HostToDevice|DeviceToHost|DeviceToDevice|HostToHost|\w+2\w+)", re.IGNORECASE)
_WAYS = {
    "hosttodevice": "HtoD", "devicetohost": "DtoH", "devicetodevice": "DtoD", "hosttohost": "HtoH",
    "h2d": "HtoD", "d2h": "DtoH", "d2d": "DtoD", "h2h": "HtoH", "p2p": "PtoP",
}  # fmt: skip


@dataclass
class XlaRows:
    """Rows, and of each the operation of XLA that it belongs to: what its event says."""

    listed: Listed = field(default_factory=Listed)
    stats: list[Stats] = field(default_factory=list)
    self_ns: list[int] = field(default_factory=list)
    on_gpu: bool = True


def rows_of(profile: XlaProfile) -> XlaRows:
    """Return what ran on the GPUs; where nothing did, the operations on the CPU."""
    found = XlaRows()
    for line in profile.lines:
        if line.on_gpu:
            device, stream = _GPU.match(line.plane), _STREAM.search(line.name)
            place = {"device": int(device[1]) if device else None, "stream": int(stream[1]) if stream else None}
            for event in line.events:
                _add_on_gpu(found, event, place)
    if found.stats:
        return found
    found.on_gpu = False
    for number, line in enumerate(profile.lines):
        if line.of_host:
            for event, alone in _operations(line):
                found.listed.add(KERNEL, event.name, {"start": event.start, "end": event.end, "stream": number})
                found.stats.append(event.stats)
                found.self_ns.append(alone)
    return found


def _operations(line: XlaLine) -> Iterator[tuple[Event, int]]:
    """The operations among a thread's events, with the time of each outside of the operations inside it."""
    mine = sorted((e for e in line.events if e.stats.get("hlo_op")), key=lambda e: (e.start, -e.end))
    alone = [e.end - e.start for e in mine]
    above: list[int] = []
    for at, event in enumerate(mine):
        while above and mine[above[-1]].end <= event.start:
            above.pop()
        if above and event.end <= mine[above[-1]].end:
            alone[above[-1]] -= event.end - event.start
        above.append(at)
    return zip(mine, (max(ns, 0) for ns in alone), strict=True)


def _add_on_gpu(found: XlaRows, event: Event, place: Mapping[str, int | None]) -> None:
    stats = event.stats
    common = {"start": event.start, "end": event.end, "correlation": whole(stats.get("correlation_id")), **place}
    moved = _details(stats.get("memcpy_details") or stats.get("memset_details"))
    common["amount"] = whole(moved.get("size"))
    copied = _COPY.match(event.name)
    if event.name.lower().startswith("memset"):
        found.listed.add(FILL, "Memset (Device)", common)
    elif copied or "memcpy_details" in stats:
        way = _WAYS.get(copied[1].lower(), "") if copied else ""
        kinds = [str(moved.get(end, "")).capitalize() for end in ("kind_src", "kind_dst")]
        places = f" ({' -> '.join(kinds)})" if all(kinds) else ""
        found.listed.add_copy(way, f"Memcpy {way or 'of unknown direction'}{places}", common)
    else:
        name = event.name.removesuffix(".kd")
        found.listed.add(KERNEL, name, {**common, **_launch(_details(stats.get("kernel_details")))})
    found.stats.append(stats)
    found.self_ns.append(event.end - event.start)


def _details(said: Any) -> dict[str, str]:
    """The words `name:value` of a text."""
    return dict(word.split(":", 1) for word in str(said or "").split() if ":" in word)


def _launch(said: Mapping[str, str]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for name in ("grid", "block"):
        sizes = [whole(size) for size in said.get(name, "").split(",")]
        found |= {f"{name}_{axis}": size for axis, size in zip("xyz", sizes, strict=False)}
    registers = whole(said.get("regs"))
    if registers is not None and not 0 < registers <= _MOST_REGISTERS:
        return found
    shared = [whole(said.get(part)) for part in ("static_shared", "dynamic_shared")]
    found["registers"] = registers
    found["shared_bytes"] = sum(filter(None, shared)) if None not in shared else whole(said.get("group_mem"))
    return found


def occupancy(stats: Stats) -> float:
    """Return the theoretical occupancy of a kernel; NaN where the profile has none, for which it writes 0."""
    said = stats.get("theoretical_occupancy_pct") or _details(stats.get("kernel_details")).get("occ_pct")
    try:
        share = float(said or 0) / 100
    except ValueError:
        return float("nan")
    return share if 0 < share <= 1 else float("nan")


def calls_of(profile: XlaProfile) -> CudaCalls:
    """Return the calls of the runtime that launched something, by thread, then start."""
    events = [
        (number, event)
        for number, line in enumerate(profile.lines)
        if line.of_host
        for event in line.events
        if whole(event.stats.get("correlation_id")) is not None and event.end >= event.start
    ]
    events.sort(key=lambda pair: (pair[0], pair[1].start, -pair[1].end))
    correlation = [whole(event.stats["correlation_id"]) or 0 for _, event in events]
    start, end = _bounds([event for _, event in events])
    return CudaCalls(
        start, end, _threads([number for number, _ in events]), np.array(correlation, np.int64),
        [event.name for _, event in events],
    )  # fmt: skip


def ranges_of(profile: XlaProfile) -> Ranges:
    """Return the steps that `jax.profiler.StepTraceAnnotation` marked, as perfkit's ranges of steps."""
    marks = [
        (number, event, step)
        for number, line in enumerate(profile.lines)
        if line.of_host
        for event in line.events
        if (step := whole(event.stats.get("step_num"))) is not None and event.end >= event.start
    ]
    marks.sort(key=lambda mark: (mark[0], mark[1].start, -mark[1].end))
    start, end = _bounds([event for _, event, _ in marks])
    names = [f"{STEP}{step}" for _, _, step in marks]
    return Ranges(start, end, _threads([number for number, _, _ in marks]), names)


def _bounds(events: list[Event]) -> tuple[Integers, Integers]:
    return np.array([e.start for e in events], np.int64), np.array([e.end for e in events], np.int64)


def _threads(numbers: list[int]) -> Integers:
    return np.array(numbers, np.int64) + PROCESS
