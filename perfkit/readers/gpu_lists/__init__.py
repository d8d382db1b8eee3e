"""Lists of what ran on a GPU, as rocprofv3 and `nsys stats` print them: times of launches, without calls of the host.

A list becomes the activity of an export of Nsight Systems, so that busy and idle time, copies and devices have one
definition. What a list lacks (calls, ranges, FLOP, bytes) stays unknown.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.errors import InputError
from perfkit.readers.kernel_names import short_name
from perfkit.readers.nsys.activity import COPY, DIRECTIONS, FILL, KERNEL, KINDS, Activity, CudaCalls, usable
from perfkit.readers.nsys.capture import assemble, measured
from perfkit.readers.nsys.database import ABSENT, Integers
from perfkit.readers.nsys.ranges import Ranges
from perfkit.table import KernelTable

LAUNCH = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_bytes")
_NUMBERS = ("start", "end", "device", "stream", "correlation", "amount", "direction", *LAUNCH)
_CODES = {direction: code for code, direction in DIRECTIONS.items()}


@dataclass
class Listed:
    """Activities, a row each, as a tool lists them; `unread`: how many lines of the list hold something else."""

    kinds: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    numbers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    unread: int = 0

    def add(self, kind: str, name: str, numbers: dict[str, int | None]) -> None:
        """Add a row: times in ns, sizes in bytes; what is None or left out is unknown."""
        self.kinds.append(kind)
        self.names.append(name or f"{kind} without a name")
        for column in _NUMBERS:
            value = numbers.get(column)
            self.numbers[column].append(ABSENT if value is None or not -(2**62) < value < 2**62 else value)

    def add_copy(self, direction: str, name: str, numbers: dict[str, int | None]) -> None:
        """Add a copy; `direction` is one of `DIRECTIONS`, "" where it is not known."""
        self.add(COPY, name, {**numbers, "direction": _CODES.get(direction)})

    @property
    def order(self) -> list[int]:
        """The numbers of the rows by start, without those whose times cannot be."""
        start, end = (np.array(self.numbers[column], np.int64) for column in ("start", "end"))
        good = np.flatnonzero(usable(start, end))
        chosen: list[int] = good[np.lexsort((end[good], start[good]))].tolist()
        return chosen

    def activity(self) -> Activity:
        """Return the rows in their `order`."""
        order = self.order
        columns: dict[str, Integers] = {c: np.array(self.numbers[c], np.int64)[order] for c in _NUMBERS}
        names = [self.names[i] for i in order]
        absent = np.full(len(order), ABSENT)
        lost = len(self.names) - len(order) + self.unread
        return Activity(
            kind=np.array([KINDS.index(k) for k in self.kinds], np.int64)[order],
            start=columns["start"], end=columns["end"], device=columns["device"], stream=columns["stream"],
            correlation=columns["correlation"], process=absent, name=names, short_name=[short_name(n) for n in names],
            amount=columns["amount"], direction=columns["direction"], shared_given=absent,
            launch={name: columns[name] for name in LAUNCH},
            dropped=[f"{lost} rows have impossible times or are damaged and are left out"] if lost else [],
        )  # fmt: skip


def table_of(listed: Listed, path: Path, reader: str, facts: dict[str, Any], more: str) -> KernelTable:
    """Return the kernel table of a list; `more` is the command that records what it lacks.

    Raises `InputError` where the list has no row that can be used.
    """
    activity = listed.activity()
    if not len(activity):
        raise InputError(f"{path} is a list of {reader}, and lists no kernel, copy or fill that can be used.", more)
    warnings = [
        *activity.dropped,
        f"a list of launches has times only: no calls of the host, ranges, FLOP or bytes. {more}",
    ]
    if not activity.of(KERNEL).any():
        warnings.append("the list holds no kernels, only copies and fills")
    empty = np.empty(0, np.int64)
    calls, ranges = CudaCalls(empty, empty, empty, empty, []), Ranges(empty, empty, empty, [])
    source = {"path": str(path), "reader": reader}
    return assemble(activity, calls, ranges, measured(activity), facts, warnings, source)


def whole(text: Any) -> int | None:
    """Return the whole number in `text`, which may have separators of thousands; None without one."""
    try:
        return int(str(text).replace(",", "").strip())
    except ValueError:
        return None


__all__ = ["COPY", "FILL", "KERNEL", "Listed", "table_of", "whole"]
