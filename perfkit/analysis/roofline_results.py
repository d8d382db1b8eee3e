"""The points and lines of the roofline chart: a part of `perfkit.analysis.results`."""

from __future__ import annotations

import msgspec


class RooflinePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A point of the roofline chart: a kind of kernel call."""

    label: str
    family: str
    pass_: str
    intensity: float
    flop_rate: float
    time_ns: float
    count: float
    efficiency: float | None
    resource: str  # the arithmetic unit that does most of its work
    ceiling: str


class RoofLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the roofline chart: a bandwidth (bytes/s) or a rate (FLOP/s)."""

    label: str
    kind: str  # bandwidth or compute
    value: float
    resource: str = ""
    working_set: float | None = None  # bytes, for a bandwidth measured at one size
    maximum: float | None = None  # the same at the device's maximum clock
    datasheet: float | None = None  # the vendor's figure, dense
