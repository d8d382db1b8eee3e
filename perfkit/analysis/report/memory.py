"""Who holds the memory in a profile, with the time that checkpointing its blocks would add to a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pandas as pd

from perfkit.memory.blocks import NAME
from perfkit.memory.results import DeviceMemory
from perfkit.profile_names import FORWARD


def holders(facts: Mapping[str, Any], frame: pd.DataFrame) -> list[DeviceMemory]:
    """Return the memory of each device, none without allocations; `frame` holds the kernels of the steps."""
    found = msgspec.convert(facts.get("memory") or [], list[DeviceMemory])
    steps = frame["step"].nunique()
    again = frame.loc[(frame["pass"] == FORWARD) & frame["layer"].notna(), "duration_ns"].sum()
    for remedy in (one for device in found for one in device.remedies if one.name == NAME):
        remedy.costs_ns = float(again) / steps if steps and again else None
    return found
