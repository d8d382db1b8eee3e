"""The memory of devices, as data. Sizes are in bytes, times in ns from the first event; what is unknown is None."""

from __future__ import annotations

import msgspec


class MemoryKind(msgspec.Struct, kw_only=True):
    """The memory of one kind of allocation: `known_bytes` by the program's own objects, the rest inferred."""

    kind: str
    bytes: int
    count: int
    known_bytes: int = 0


class Owner(msgspec.Struct, kw_only=True):
    """The memory of one kind that a module, a parameter or a line holds."""

    kind: str
    name: str = ""
    file: str = ""
    line: int = 0
    function: str = ""
    bytes: int = 0
    count: int = 0
    known: bool = False


class Moment(msgspec.Struct, kw_only=True):
    """The memory at one moment. The parts add up to `allocated`, and the owners too."""

    time_ns: float | None = None
    allocated: int = 0
    requested: int | None = None
    reserved: int | None = None
    parts: list[MemoryKind] = []
    owners: list[Owner] = []


class MemoryCourse(msgspec.Struct, kw_only=True):
    """Bytes over time by kind, thinned so that every peak stays; the kinds add up to what is allocated.

    `at` counts milliseconds from the first event, or events where they have no times.
    """

    timed: bool
    at: list[float] = []
    kinds: dict[str, list[int]] = {}
    reserved: list[int] = []


class Unused(msgspec.Struct, kw_only=True):
    """Reserved memory without a tensor in it, at the end: `free` bytes may be given out, in `blocks` pieces, the
    largest of `largest` bytes; `pending` bytes are freed, and a stream may still use them."""

    free: int = 0
    largest: int = 0
    blocks: int = 0
    pending: int = 0
    expandable: bool = False


class Failure(msgspec.Struct, kw_only=True):
    """An allocation that failed: of `bytes`, when the device had `device_free` left."""

    bytes: int
    device_free: int | None = None
    allocated: int = 0
    reserved: int | None = None
    where: str = ""


class Remedy(msgspec.Struct, kw_only=True):
    """A change, the bytes by which the peak would be lower, and the time that it adds to a step."""

    name: str
    text: str
    saves: int | None = None
    costs_ns: float | None = None


class DeviceMemory(msgspec.Struct, kw_only=True):
    """The memory of one device. `end` is None where only the course is known."""

    source: str
    device: str
    events: int
    peak: Moment
    end: Moment | None = None
    course: MemoryCourse | None = None
    unused: Unused | None = None
    failures: list[Failure] = []
    remedies: list[Remedy] = []
    notes: list[str] = []


class MemoryReport(msgspec.Struct, kw_only=True):
    """The memory of the devices in one or several files."""

    title: str
    devices: list[DeviceMemory]
    warnings: list[str] = []
