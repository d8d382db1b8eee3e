"""A profile of XLA as both of its files hold it: planes (a device, or the host), lines of events, and HLO modules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

Stats = dict[str, Any]


class Event(NamedTuple):
    """One event of a line, from `start` to `end` (ns), and what is known of it."""

    name: str
    start: int
    end: int
    stats: Stats


@dataclass
class XlaLine:
    """The events of a stream or a thread of `plane`."""

    plane: str
    name: str
    events: list[Event]

    @property
    def on_gpu(self) -> bool:
        """Return whether it is a stream of a GPU; XProf adds lines that say the same once more in other words."""
        return self.plane.startswith("/device:GPU:") and self.name.startswith("Stream #")

    @property
    def of_host(self) -> bool:
        """Return whether it is a thread of the host."""
        return self.plane.startswith("/host:")


@dataclass
class XlaProfile:
    """Lines, facts of each plane by its name, HLO modules by the number of their program, and `notes` of the tool."""

    lines: list[XlaLine] = field(default_factory=list)
    planes: dict[str, Stats] = field(default_factory=dict)
    modules: dict[int, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
