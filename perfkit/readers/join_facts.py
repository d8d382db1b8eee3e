"""Facts of a joined table: the report's facts laid out for them, and how well the two fit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.table import KernelTable
from perfkit.tree.sequences import Booleans, Integers

if TYPE_CHECKING:
    import pandas as pd

KERNEL = "gpu_kernel"
_SHOWN = 5


def facts_of(trace: KernelTable, counters: KernelTable, row: Integers, ceilings: bool) -> dict[str, Any]:
    """Return what the report knows, laid out for the trace's rows, and how well the two fit."""
    order = trace.frame["order"].to_numpy(np.int64)
    length = int(order.max()) + 1
    of = np.full(length, -1, np.int64)
    launched = counters.frame["order"].to_numpy(np.int64)
    of[order[row >= 0]] = launched[row[row >= 0]]
    kernel = np.zeros(length, bool)
    kernel[order] = (trace.frame["kind"] == KERNEL).to_numpy(bool)
    details = counters.facts.get("kernels") or []
    facts: dict[str, Any] = {
        "counters": _summary(trace, counters, row),
        "kernels": [details[i] if 0 <= i < len(details) else {} for i in of.tolist()],
    }
    for name in ("missing", "gpus", "max_clock_ceilings"):
        if name in counters.facts:
            facts[f"counters_{name}" if name in trace.facts else name] = counters.facts[name]
    if ceilings and counters.facts.get("row_ceilings"):
        stored = counters.facts["row_ceilings"]
        facts["row_ceilings"] = {name: _by_row(values, of, kernel) for name, values in stored.items()}
        facts["ceilings"] = counters.facts.get("ceilings")
        facts["ceilings_hold"] = f"{counters.facts.get('ceilings_hold', '')} of the counters".strip()
    return facts


def _by_row(values: list[float | None], of: Integers, kernel: Booleans) -> list[float | None]:
    """A ceiling for each row: its own, for a kernel without counters the median, for a copy none."""
    known = [value for value in values if value is not None]
    middle = sorted(known)[len(known) // 2] if known else None
    return [values[i] if i >= 0 else (middle if k else None) for i, k in zip(of.tolist(), kernel.tolist(), strict=True)]


def _summary(trace: KernelTable, counters: KernelTable, row: Integers) -> dict[str, Any]:
    frame = trace.frame
    kernels = (frame["kind"] == KERNEL).to_numpy(bool)
    time = np.nan_to_num(frame["duration_ns"].to_numpy(float))
    total = float(time[kernels].sum())
    used = np.unique(row[row >= 0])
    theirs = np.setdiff1d(np.flatnonzero((counters.frame["kind"] == KERNEL).to_numpy(bool)), used)
    return {
        "report": Path(counters.source.get("path", "the report")).name,
        "matched": int((row >= 0).sum()),
        "kernels": int(kernels.sum()),
        "matched_time": float(time[row >= 0].sum()) / total if total else None,
        "captured": int((counters.frame["kind"] == KERNEL).sum()),
        "unused": len(theirs),
        "without_counters": _names(frame, np.flatnonzero(kernels & (row < 0))),
        "without_row": _names(counters.frame, theirs),
    }


def _names(frame: pd.DataFrame, at: Integers) -> list[list[Any]]:
    """The kernels at `at` by short name, the most frequent first: [name, count]."""
    names = frame["short_name"].fillna(frame["name"]).iloc[at].tolist()
    return [[name[:200], count] for name, count in Counter(names).most_common(50)]


def sentences(facts: dict[str, Any]) -> list[str]:
    """Return what to know before using the joined numbers."""
    share = f" ({100 * facts['matched_time']:.1f}% of their time)" if facts["matched_time"] is not None else ""
    said = [
        f"counters of {facts['report']} joined onto {facts['matched']} of {facts['kernels']} kernels{share} by name, "
        "grid, block and launch order; times are those of the trace, while kernels were counted one by one, replayed, "
        "with caches flushed before each (unless captured with --cache-control none): what a kernel finds in L2 "
        "otherwise then counts as bytes of device memory"
    ]
    if facts["layers"]:
        said.append(
            f"scaled: the counters are of a model with one layer and serve each of the {facts['layers']} layers alike"
        )
    if facts["in_cache"]:
        said.append(
            f"{facts['in_cache']} of them ran faster than device memory could move the bytes that were counted with "
            "empty caches: they found data in L2, and what they moved is unknown (--cache-control none does not empty "
            "them)"
        )
    if facts["steps"] > 1 and facts["steps_captured"] != facts["steps"]:
        said.append(f"the counters are of one step and serve all {facts['steps']} steps of the trace")
    for key, what in (("without_counters", "without counters"), ("without_row", "captured, but not placed")):
        names = facts[key]
        if names:
            shown = ", ".join(f"{name[:60]} ×{count}" if count > 1 else name[:60] for name, count in names[:_SHOWN])
            rest = sum(count for _, count in names[_SHOWN:])
            said.append(f"{what}: {shown}{f' and {rest} more' if rest else ''}")
    return said
