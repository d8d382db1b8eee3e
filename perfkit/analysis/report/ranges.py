"""Counts of a trace's reader besides the rows: annotation ranges, copies, and waits for the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfkit.analysis.step_results import RangeTime, Transfer, Wait

_MOST = 200  # ranges in a report; the table's facts hold more


def ranges(facts: Mapping[str, Any]) -> list[RangeTime]:
    """The ranges that launched kernels, most kernel time first. Totals of the capture, not of a step.

    Readers count the kernels of ranges, and no copies and fills, inside of steps and outside: shares are of the same.
    """
    total = sum(d["kernel_ns"] for d in facts.get("devices", []))
    return [
        RangeTime(r["name"], r["count"], r["host_ns"], r["kernels"], r["kernel_ns"], r["kernel_ns"] / total)
        for r in facts.get("ranges", [])[:_MOST]
        if r["kernels"] and total
    ]


def transfers(facts: Mapping[str, Any]) -> list[Transfer]:
    """Copies by direction and kind of memory, the longest first; the rate is the ratio of the sums."""
    return [
        Transfer(
            c["name"], c["count"], c["ns"], c["bytes"], c["bytes"] / c["ns"] * 1e9 if c["bytes"] and c["ns"] else None
        )
        for c in facts.get("copies", [])
    ]


def waits(facts: Mapping[str, Any]) -> list[Wait]:
    """The host's waits for the GPU by call, the longest first."""
    return [Wait(w["kind"], w["count"], w["ns"]) for w in facts.get("synchronisation", [])]
