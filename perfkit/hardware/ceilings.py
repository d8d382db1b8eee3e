"""Measured ceilings of a machine: the roofs that kernels are judged against.

A CPU has no single memory roof: a small tensor lives in cache. So bandwidth is a curve over working-set sizes, and
`Ceilings.bandwidth_for` reads it conservatively: no size gets a roof lower than any larger size was seen to reach.
Values are bytes/s and FLOP/s. This module only describes; `perfkit.hardware.measure` measures and
`perfkit.hardware.store` keeps the result.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from perfkit.hardware.attention import CausalRate
from perfkit.hardware.collectives.results import CollectiveSweep

SCHEMA_VERSION = 2

CACHE_LEVELS = ("L1d", "L2", "L3")

# Memory read and written by kernels whose results are storage of their own, and by kernels that work in place: these
# move twice the bytes a line that they fetch, so that inside the caches their roof is about twice as high.
# Reads alone: a CPU core has a fixed number of reads under way, and its stores do not compete with them.
MEMORY, IN_PLACE, READING = "memory", "memory in place", "memory, read alone"
BANDWIDTHS = (MEMORY, IN_PLACE, READING)
BUSY = 0.25  # share of the CPUs' time in other hands above which what is measured may be too low
FUNCTIONS = "functions"  # numbers a second of which an exponential is taken: no roof, for libraries are compared by it


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """One roof: the best rate of several samples.

    `resource` is one of `BANDWIDTHS` or of `perfkit.table.RESOURCES`; `unit` is "B/s" or "FLOP/s". `how` says what
    was run to reach it. `samples` are the best rates of the separate rounds, the best first; `spread` is the share by
    which the second best falls short (None for one round): a rate that was reached twice can be trusted.
    """

    name: str
    resource: str
    unit: str
    value: float
    how: str
    samples: tuple[float, ...] = ()
    spread: float | None = None
    working_set: float | None = None  # bytes, for a bandwidth


class SelfCheck(msgspec.Struct, frozen=True):
    """A check that the measurement made of itself: `ok` is None where it could not be made."""

    name: str
    ok: bool | None
    text: str


class Ceilings(msgspec.Struct, kw_only=True):
    """All ceilings of one device, as measured on `measured_at` (ISO 8601, UTC) with `threads` threads.

    `bandwidth` holds (working-set bytes, bytes/s) by rising size, as measured, and `in_place` the same for work in
    place (bytes read and written both counted; empty where it was not measured). `reading` is of the bytes read alone,
    whatever is written meanwhile (empty where it was not measured: GPUs). `compute` maps a resource to FLOP/s; a
    resource that is not in it is unknown. `details` holds the `Ceiling` for every number of these. `libraries`
    maps a resource that several libraries reach, or `FUNCTIONS`, to the best rate of each, by its name. `caches` maps
    L1d, L2, L3 to the bytes that all threads together have. `datasheet` maps "memory" and resources to the vendor's
    dense peak where known, with where that comes from in `datasheet_source`. `on_paper` ceilings were not measured: all
    of them are the vendor's.
    """

    schema: int = SCHEMA_VERSION
    fingerprint: str
    device: str
    device_name: str = ""
    measured_at: str
    threads: int
    bandwidth: list[tuple[float, float]]
    in_place: list[tuple[float, float]] = []
    reading: list[tuple[float, float]] = []
    compute: dict[str, float]
    details: list[Ceiling] = []
    libraries: dict[str, dict[str, float]] = {}
    attention: list[CausalRate] = []  # of a GPU
    caches: dict[str, float] = {}
    datasheet: dict[str, float] = {}
    datasheet_source: str = ""
    on_paper: bool = False
    software: dict[str, str] = {}  # what measured: torch, compiler, perfkit
    load: float | None = None  # share of the CPUs, or of the GPU, others used when it began, 0 to 1: too low ceilings
    duration_s: float | None = None
    region_s: float | None = None  # an empty parallel region: to begin work on all threads and to wait for them
    handover: float | None = None  # bytes/s at which threads read what all of them wrote, from each other's caches
    collectives: list[CollectiveSweep] = []  # between ranks of this machine: `perfkit ceilings --ranks N`
    warnings: list[str] = []
    checks: list[SelfCheck] = []

    def envelope(self, in_place: bool = False) -> list[tuple[float, float]]:
        """(working-set bytes, bytes/s) made non-increasing: each size gets the best of its own and all larger sizes.

        With `in_place` for work in place; where that was not measured, the other curve.
        """
        return _falling((in_place and self.in_place) or self.bandwidth)

    def reading_envelope(self) -> list[tuple[float, float]]:
        """Return the non-increasing curve of the bytes read alone; empty where reading was not measured."""
        return _falling(self.reading)

    def bandwidth_for(self, working_set: float, in_place: bool = False) -> Ceiling:
        """The memory roof of a kernel that touches `working_set` bytes of distinct storage, perhaps `in_place`.

        Between two measured sizes the roof of the smaller holds (never too low). Raises `ValueError` when no bandwidth
        was measured.
        """
        curve = self.envelope(in_place)
        if not curve:
            raise ValueError("no bandwidth was measured")
        return self._memory_ceiling(*_point(curve, working_set), (MEMORY, IN_PLACE))

    def reading_for(self, working_set: float) -> Ceiling | None:
        """The roof of the bytes read of a kernel that touches `working_set` bytes; None where it was not measured."""
        curve = self.reading_envelope()
        return self._memory_ceiling(*_point(curve, working_set), (READING,)) if curve else None

    def memory_time(
        self, read: float, written: float, working_set: float, in_place: bool = False
    ) -> tuple[float, Ceiling]:
        """Return the least seconds for these bytes, and the ceiling that sets them: for all bytes, or for those read.

        Raises `ValueError` when no bandwidth was measured.
        """
        whole, reading = self.bandwidth_for(working_set, in_place), self.reading_for(working_set)
        times = [((read + written) / whole.value, whole)]
        times += [(read / reading.value, reading)] if reading else []
        return max(times, key=lambda one: one[0])

    @property
    def dram_bandwidth(self) -> float:
        """Bytes/s of main memory: the value at the largest working set measured."""
        return self.envelope()[-1][1]

    @property
    def l2_capacity(self) -> float | None:
        """Bytes that a GPU's L2 holds; None for a CPU, whose caches form a hierarchy, and where unknown."""
        return (self.device.startswith("cuda") and self.caches.get("L2")) or None

    def compute_for(self, resource: str) -> Ceiling | None:
        """The roof of an arithmetic unit (`perfkit.table.RESOURCES`); None where unknown."""
        return next((c for c in self.details if c.resource == resource), None)

    def level_of(self, working_set: float) -> str:
        """The smallest cache that holds `working_set` bytes spread over all threads, or "memory"."""
        return next((n for n in CACHE_LEVELS if working_set <= self.caches.get(n, 0.0)), "memory")

    def _memory_ceiling(self, size: float, rate: float, resources: tuple[str, ...]) -> Ceiling:
        """The `Ceiling` of one of `resources` that reached `rate`, named for the working set it was measured for."""
        made = Ceiling(name="bandwidth", resource="memory", unit="B/s", value=rate, how="unknown")
        source = next((c for c in self.details if c.resource in resources and c.value == rate), made)
        return msgspec.structs.replace(source, name=self.bandwidth_name(source, size), working_set=size)

    def bandwidth_name(self, source: Ceiling, size: float) -> str:
        """Words such as "triad, 768 KiB working set (fits L2)"; the name alone of what was not measured."""
        if self.on_paper:
            return source.name
        level = self.level_of(size)
        place = "main memory" if level == "memory" else f"fits {level}"
        return f"{source.name}, {_binary(size)} working set ({place})"


def _falling(curve: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """`curve` by rising size, each with the best rate of its own and all larger sizes."""
    best = 0.0
    rising = []
    for size, rate in sorted(curve, reverse=True):
        best = max(best, rate)
        rising.append((size, best))
    return rising[::-1]


def _point(curve: list[tuple[float, float]], working_set: float) -> tuple[float, float]:
    """The point of the next smaller size that was measured, of the smallest if there is no smaller one."""
    return curve[max(0, bisect_right([size for size, _ in curve], working_set) - 1)]


def to_json(ceilings: Ceilings) -> bytes:
    """Indented JSON."""
    return msgspec.json.format(msgspec.json.encode(ceilings), indent=1)


def from_json(data: bytes | str) -> Ceilings:
    """Read what `to_json` wrote. Raises `ValueError` for anything else, older or newer schemas included."""
    try:
        ceilings = msgspec.json.decode(data, type=Ceilings)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"these are not ceilings: {error}") from error
    if ceilings.schema != SCHEMA_VERSION:
        raise ValueError(f"these ceilings have schema {ceilings.schema}, not {SCHEMA_VERSION}")
    if not ceilings.bandwidth:
        raise ValueError("these ceilings hold no bandwidth")
    return ceilings


def _binary(size: float) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size:.0f} B"
