"""The owners of the memory of each device, where allocations were recorded."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from perfkit.render.page import Section
from perfkit.render.pages.memory import device_sections
from perfkit.render.report import About

AFTER = "modules"

OWNERS = 30  # in the long form; JSON has all


def sections(about: About) -> Iterator[Section]:
    """Yield the tables and figures of each device."""
    for device in about.backend.memory:
        for section in device_sections(device, f": {device.device}", about.rows or OWNERS):
            yield replace(section, fold=about.alone)
