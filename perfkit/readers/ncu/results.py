"""One profiled kernel of an Nsight Compute report, whichever way it was read."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

# NVIDIA's numbers of the kinds of result (IAction.WorkloadType).
WORKLOADS = {0: "kernel", 1: "range", 2: "command list", 3: "graph"}
GRAPH = 3


class NcuRule(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of NVIDIA's advice as stored in the report.

    `kind` is NVIDIA's MsgType (1 ok, 2 optimization, 3 warning, 4 error); `speedup` an estimate in per cent, of the
    whole kernel where `scope` is 2 (global), of a part of it where it is 1 (local: these overlap, never add them).
    """

    name: str
    section: str = ""
    title: str = ""
    message: str = ""
    kind: int = 0
    speedup: float | None = None
    scope: int = 0


class NcuResult(msgspec.Struct, kw_only=True):
    """A result (in NVIDIA's words an action): names, metrics by name in base units, rules and NVTX ranges.

    `values` holds only metrics that have a value: what is missing is missing, never zero.
    """

    name: str
    function: str
    mangled: str = ""
    type: int = 0
    metrics: int = 0
    sections: list[str] = []
    values: dict[str, float | str] = {}
    units: dict[str, str] = {}
    rules: list[NcuRule] = []
    ranges: list[str] = []

    def number(self, *names: str) -> float:
        """The value of the first of `names` that has one; NaN for none."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, float) and math.isfinite(value):
                return value
        return math.nan

    def text(self, name: str) -> str:
        """A value that is text; "" without."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    def has(self, names: Iterable[str]) -> bool:
        """Return whether one of these metrics was collected."""
        return any(name in self.values for name in names)


# Factor to base units (ns, bytes, Hz, plain counts) of the units that the tool writes, lower case.
_TIME = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_STEMS = ("byte", "hz", "cycle", "inst", "sector", "warp", "request", "thread", "block")


def to_base(value: float, unit: str) -> float:
    """`value` in base units: "usecond" becomes ns, "Mbyte/second" bytes/s, "Ghz" Hz. An unknown unit stays."""
    factor = _factor(unit)
    return value if factor is None else value * factor


def is_unit(unit: str) -> bool:
    """Return whether `to_base` knows the unit."""
    return _factor(unit) is not None


def _factor(unit: str) -> float | None:
    unit = unit.strip().lower()
    if unit in _TIME:
        return _TIME[unit]
    stem, _, per = unit.partition("/")
    for known in _STEMS:
        position = stem.find(known)
        if position >= 0 and stem[:position] in _PREFIX:
            rate = _TIME.get(per)
            return _PREFIX[stem[:position]] * (1e9 / rate if rate else 1.0)
    return None
