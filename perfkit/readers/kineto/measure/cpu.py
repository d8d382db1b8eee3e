"""Rows of operators on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.readers.columns import Coded, Integers, integers, same
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.measure.costs import costed
from perfkit.readers.kineto.measure.rows import Rows


def columns(host: HostEvents, rows: Rows, chosen: Integers) -> dict[str, Any]:
    """Columns of the rows on the CPU, the events `chosen`, but for their places."""
    result: dict[str, Any] = {
        "name": Coded(host.names, host.name[chosen]),
        "kind": same("cpu_op", len(chosen)),
        "device": same("cpu", len(chosen)),
        "stream": integers(host.lane[chosen]),
        "start_ns": host.start[chosen].astype(float),
        "duration_ns": rows.time_ns[chosen].astype(float),
    }
    result.update(costed(rows, chosen))
    return result


def events_of(host: HostEvents, rows: Rows) -> Integers:
    """The events that are rows on the CPU, in the order of the rows."""
    chosen = np.flatnonzero(rows.is_row)
    return chosen[np.argsort(host.start[chosen], kind="stable")]
