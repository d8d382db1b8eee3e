"""The step of each rank, divided: computation, copies, waiting, exposed and overlapped communication, idle time."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.intervals import Union
from perfkit.ranks.matching import Matched
from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.waiting import Waiting


def hta_overlap(member: RankTable) -> float | None:
    """The overlap that HolisticTraceAnalysis 0.5 gives, to compare with. None without communication.

    It leaves out the last step, and rounds starts up and ends down to whole µs, which shortens each kernel by 1 µs.
    """
    inside = (member.step >= 0) & (member.step < member.steps - (member.steps > 1))
    origin = member.facts.get("origin_ns", 0) % 1000
    start, end = np.ceil((member.start + origin) / 1e3), np.floor((member.end + origin) / 1e3)
    talks, compute = (
        Union(start[rows & inside], end[rows & inside]) for rows in (member.is_collective, member.is_compute)
    )
    return talks.inside(compute) / talks.length if talks.length else None


def divide(member: RankTable, column: int, matched: Matched, waiting: Waiting) -> dict[str, Any]:
    """The fields of `perfkit.ranks.results.RankStep` that come from the rows: means over the steps, and `overlap`."""
    inside = member.step >= 0
    talks, compute = member.is_collective & inside, member.is_compute & inside
    wait = np.zeros(len(member.frame))
    here = matched.rows[:, column] >= 0
    wait[matched.rows[here, column]] = np.nan_to_num(waiting.wait[here, column])
    start, end = member.start, member.end
    communication = Union(start[talks], end[talks])
    transfer = Union((start + wait)[talks], end[talks])
    computing = Union(start[compute], end[compute])
    exposed = transfer.length - transfer.inside(computing)
    overlapped = communication.inside(computing)
    busy = Union(start[inside], end[inside])
    steps = max(member.steps, 1)
    return {
        "compute_ns": computing.length / steps,
        "waiting_ns": _left(communication.length - overlapped - exposed, steps),
        "exposed_ns": exposed / steps,
        "copy_ns": _left(busy.length - computing.length - communication.length + overlapped, steps),
        "overlapped_ns": overlapped / steps,
        "transfer_ns": transfer.length / steps,
        "overlap": overlapped / communication.length if communication.length else None,
        "overlap_hta": hta_overlap(member),
        "step_ns": float(np.mean(member.step_ns)),
        "idle_ns": float(np.mean([one["idle_ns"] for one in member.facts["per_step"]])),
        "idle": {one["cause"]: one["ns"] / steps for one in member.facts.get("idle", [])},
    }


def _left(ns: float, steps: int) -> float:
    """Return a difference of sums of times, a step, without rounding errors: what should be 0 is 0."""
    return max(0.0, round(ns / steps, 3))
