"""Owners of the memory in a profile, with the time that checkpointing its blocks would add to a step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from perfkit.columns import plain
from perfkit.memory.blocks import NAME
from perfkit.memory.results import DeviceMemory
from perfkit.profile_names import FORWARD

if TYPE_CHECKING:
    import pandas as pd

_LINE = re.compile(r"(.+):(\d+)(?: in |$)")


def holders(facts: Mapping[str, Any], frame: pd.DataFrame) -> list[DeviceMemory]:
    """Return the memory of each device, none without allocations; `frame` holds the kernels of the steps."""
    found = msgspec.convert(facts.get("memory") or [], list[DeviceMemory])
    if not found:
        return found
    steps = frame["step"].nunique()
    repeated = (frame["pass"] == FORWARD) & frame["layer"].notna()
    again = np.nansum(frame["duration_ns"].to_numpy(float)[repeated.to_numpy(bool)])
    for remedy in (one for device in found for one in device.remedies if one.name == NAME):
        remedy.costs_ns = float(again) / steps if steps and again else None
    lines = _lines(frame)
    for owner in (one for device in found for one in device.peak.owners):
        if known := lines.get((owner.name, owner.function)):
            owner.file, owner.line = known
    return found


def _lines(frame: pd.DataFrame) -> dict[tuple[str, str], tuple[str, int]]:
    """The source line that calls an operator of a module most, where lines were recorded; backward rows have that of
    their forward."""
    lined = frame[frame["line"].notna()]
    rows = Counter(zip(*(map(str, plain(lined[name])) for name in ("module", "operator", "line")), strict=True))
    found: dict[tuple[str, str], tuple[str, int]] = {}
    for (module, operator, text), _ in rows.most_common():
        if place := _LINE.match(text):
            found.setdefault((module, operator), (place[1], int(place[2])))
    return found
