"""Counters of a GPU sampled over time: GPU metrics of Nsight Systems, and counter tracks of traces.

A sample holds for the time since the one before it, over the whole device: what runs at the same time shares it.
Nothing is replayed, so that these are the counters of the step as it ran.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.columns import Booleans, Integers
from perfkit.numbers import unique
from perfkit.table import KernelTable

Reals = npt.NDArray[np.float64]
# Known counters, as shares of the peak, by the names of Nsight Systems' sets and of the metrics that they show.
_KNOWN = {
    "dram_read": r"dram read (bandwidth|throughput)|dramc?__read_throughput\b.*pct_of_peak.*",
    "dram_write": r"dram write (bandwidth|throughput)|dramc?__write_throughput\b.*pct_of_peak.*",
    "dram": r"dram (bandwidth|throughput)|dramc?__throughput\b.*pct_of_peak.*",
    "l2": r"l2( cache)? (bandwidth|throughput)|lts__(t_sectors_)?throughput\b.*pct_of_peak.*",
    "tensor": r"tensor (active|pipe active)|sm__pipe_tensor\w*_active\w*\b.*pct_of_peak.*",
    "sm": r"sms? active|sm__cycles_active\b.*pct_of_peak.*",
}
_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _KNOWN.items()}
_UNIT = re.compile(r"\s*\[([^\]]*)\]$|\s*\((%)\)$")
_PERCENT = ("throughput %", "%", "")
MOST_NAMED = 8  # tracks that a warning names
_ROUNDING = 1.005  # of the peak: what a sampler reports above it is rounding


@dataclass(frozen=True)
class Track:
    """One counter of one device: `end` of each sample's interval in ns, sorted, and its value as recorded."""

    name: str
    device: int
    end: Integers
    value: Reals

    @property
    def measure(self) -> str:
        """Return what it measures (a name of `_KNOWN`), "" where it is not understood."""
        return measure_of(self.name)


def measure_of(name: str) -> str:
    """Return what a counter of this name measures (a name of `_KNOWN`), "" where it is not understood."""
    unit = _UNIT.search(name)
    said = next((one for one in unit.groups() if one is not None), "") if unit else ""
    if said.lower() not in _PERCENT:
        return ""
    plain = _UNIT.sub("", name).strip()
    return next((known for known, pattern in _PATTERNS.items() if pattern.fullmatch(plain)), "")


def tracks_of(samples: Iterable[tuple[str, int, Integers, Reals]]) -> list[Track]:
    """Tracks from names, devices, times and values, in order of time; those without samples left out."""
    found = []
    for name, device, end, value in samples:
        order = np.argsort(end, kind="stable")
        if len(order):
            found.append(Track(name, device, end[order], value[order]))
    return found


def not_understood(tracks: Sequence[Track]) -> list[str]:
    """A warning that names the tracks from which no figure is made, if there are any."""
    names = sorted({track.name for track in tracks if not track.measure or _impossible(track)})
    if not names:
        return []
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    tracks_are = "1 counter track is" if len(names) == 1 else f"{len(names)} counter tracks are"
    return [f"{tracks_are} not understood, and in no figure: {', '.join(names[:MOST_NAMED])}{more}"]


def _impossible(track: Track) -> bool:
    """Return whether values cannot be percentages of a peak."""
    return bool((track.value < 0).any() or (track.value > 100 * _ROUNDING).any())


@dataclass(frozen=True)
class GpuActivities:
    """Activities of GPUs: when they ran (ns, the tracks' clock), and on which device."""

    start: Integers
    end: Integers
    device: Integers


def add(
    tracks: Sequence[Track], table: KernelTable, bandwidth: Mapping[int, float] | None = None, origin: int = 0
) -> None:
    """Add to the facts of `table` the counters while its rows ran, and a warning of the tracks that are in no figure.

    `counters` has by what the rows are taken together (`of`: step, pass, family), their `key`, `busy_ns`, and shares
    (0 to 1) over the part of that time that samples cover, `covered_ns`; a counter that the capture lacks is left out.
    `dram_bytes` need the peak `bandwidth` of each device (bytes/s). The table's times count from `origin` on the clock
    of the tracks.
    """
    table.warnings += not_understood(tracks)
    known = [track for track in tracks if track.measure and not _impossible(track)]
    if not known:
        return
    frame = table.frame
    frame = frame[frame["step"].notna() & frame["start_ns"].notna() & (frame["duration_ns"] > 0)]
    if not len(frame):
        return
    start = np.rint(frame["start_ns"].to_numpy(float)).astype(np.int64) + origin
    device = [int(name.partition(":")[2] or 0) for name in frame["device"].astype(str)]
    rows = GpuActivities(
        start, start + np.rint(frame["duration_ns"].to_numpy(float)).astype(np.int64), np.array(device, np.int64)
    )
    found = []
    for of in ("step", "pass", "family"):
        labels = frame[of].astype(object).to_numpy()
        for key in dict.fromkeys(label for label in labels.tolist() if isinstance(label, str | int)):
            found.append({"of": of, "key": str(key), **_of_rows(known, rows, labels == key, bandwidth or {})})
    table.facts["counter_tracks"] = found


def _of_rows(
    tracks: Sequence[Track], rows: GpuActivities, mine: Booleans, bandwidth: Mapping[int, float]
) -> dict[str, Any]:
    """The counters over the time in which some rows ran, all devices taken together."""
    held: dict[str, list[tuple[float, float]]] = {}
    moved, whole, covered_ns = 0.0, 0.0, 0.0
    for device in unique(rows.device[mine]).tolist():
        start, end = _union(rows.start[mine & (rows.device == device)], rows.end[mine & (rows.device == device)])
        whole += float((end - start).sum())
        of_device = {track.measure: _held(track, start, end) for track in tracks if track.device in (device, -1)}
        for measure, pair in of_device.items():
            held.setdefault(measure, []).append(pair)
        covered_ns += max((covered for _, covered in of_device.values()), default=0.0)
        moved += _moved(of_device) * bandwidth.get(device, math.nan) / 1e9
    shares = {name: _ratio(pairs) for name, pairs in held.items()}
    known = {name: share for name, share in shares.items() if math.isfinite(share)}
    bytes_ = {"dram_bytes": moved} if math.isfinite(moved) and known else {}
    return {"busy_ns": whole, "covered_ns": covered_ns, **known, **bytes_}


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """A share over all devices, a ratio of sums; NaN where nothing was sampled."""
    covered = sum(ns for _, ns in pairs)
    return sum(held for held, _ in pairs) / covered if covered else math.nan


def _moved(held: Mapping[str, tuple[float, float]]) -> float:
    """The time in ns that device memory would need at its peak for what it moved; NaN where a part is not sampled."""
    if "dram_read" in held and "dram_write" in held:
        return held["dram_read"][0] + held["dram_write"][0]
    return held["dram"][0] if "dram" in held else math.nan


def _union(start: Integers, end: Integers) -> tuple[Integers, Integers]:
    """The time in which any of the intervals holds, as intervals apart from each other."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    begins = np.append(True, start[1:] > end[:-1])
    return start[begins], end[np.append(begins[1:], True)]


def _held(track: Track, start: Integers, end: Integers) -> tuple[float, float]:
    """Σ share × time over the intervals, and the time of them that samples cover, in ns."""
    begin, value = track.end[:-1].astype(float), track.value[1:] / 100
    finish = track.end[1:].astype(float)
    length = finish - begin
    total = np.append(0.0, np.cumsum(value * length))
    lasted = np.append(0.0, np.cumsum(length))
    if not len(length):
        return 0.0, 0.0

    def until(sums: Reals, moment: Integers) -> Reals:
        """The running sum at moments inside of sampled intervals."""
        return np.interp(moment.astype(float), np.append(begin[0], finish), sums)

    held = (until(total, end) - until(total, start)).sum()
    covered = (until(lasted, end) - until(lasted, start)).sum()
    return float(held), float(covered)
