"""Owners of the memory in a profile, with the time that checkpointing its blocks would add to a step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pandas as pd

from perfkit.memory.blocks import NAME
from perfkit.memory.results import DeviceMemory
from perfkit.profile_names import FORWARD

_LINE = re.compile(r"(.+):(\d+)(?: in |$)")


def holders(facts: Mapping[str, Any], frame: pd.DataFrame) -> list[DeviceMemory]:
    """Return the memory of each device, none without allocations; `frame` holds the kernels of the steps."""
    found = msgspec.convert(facts.get("memory") or [], list[DeviceMemory])
    steps = frame["step"].nunique()
    again = frame.loc[(frame["pass"] == FORWARD) & frame["layer"].notna(), "duration_ns"].sum()
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
    lined = frame.loc[frame["line"].notna(), ["module", "operator", "line"]].astype(str)
    found: dict[tuple[str, str], tuple[str, int]] = {}
    for row, _ in lined.value_counts().items():
        module, operator, text = row  # type: ignore[misc]
        if place := _LINE.match(text):
            found.setdefault((module, operator), (place[1], int(place[2])))
    return found
