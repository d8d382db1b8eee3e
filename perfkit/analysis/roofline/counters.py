"""Counters in a report of Nsight Compute for the rows of a kernel group together.

Shares are weighted by time, amounts are sums, and what belongs to one launch (grid, limits) is of the longest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.analysis.roofline.excluded import details, multiprocessors
from perfkit.analysis.roofline.roof import Integers
from perfkit.instructions.results import KernelCode

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Counters:
    """Facts of a group of launches; None or empty if the report has none."""

    blocks: float | None = None
    threads: float | None = None  # of a block
    registers: float | None = None  # of a thread
    shared_bytes: float | None = None  # of a block
    waves: float | None = None
    multiprocessors: int | None = None
    occupancy: float | None = None  # achieved, 0 to 1
    theoretical: float | None = None  # what the launch allows, 0 to 1
    limits: dict[str, float] = field(default_factory=dict)  # blocks a multiprocessor, by resource, the tightest first
    sectors: float | None = None  # of 32 bytes, between L1 and L2
    excessive: float | None = None  # of them, moved for nothing
    local: float | None = None  # sectors of local memory: spilled registers, arrays that are indexed at run time
    spills: float | None = None  # requests to local memory that are known to be spilled registers
    warp_threads: float | None = None  # of a warp's 32 that take part in its instructions; fewer where its ways part
    warp_threads_on: float | None = None  # of these, not switched off by a predicate
    evenness: float | None = None  # cycles in which a multiprocessor has blocks, on average over those of the last
    tensor_active: float | None = None
    busy: dict[str, float] = field(default_factory=dict)  # "DRAM", "L2", "L1", "multiprocessors" → share of the peak
    ceilings: dict[str, float] = field(default_factory=dict)  # resource → bytes/s or FLOP/s, as stored for the launch
    stalls: dict[str, float] = field(default_factory=dict)  # reason → share of the stalled cycles, the largest first
    code: KernelCode | None = None  # the instructions of its longest launch

    @property
    def busiest(self) -> tuple[str, float] | None:
        """The level nearest to its peak, and how near; None if the report does not have it."""
        return max(self.busy.items(), key=lambda item: item[1], default=None)


_LEVELS = {"sm": "multiprocessors", "l1tex": "L1", "lts": "L2"}


def of_groups(
    frame: pd.DataFrame, codes: Integers, groups: int, facts: Mapping[str, Any], code: Sequence[KernelCode] = ()
) -> list[Counters] | None:
    """The counters of each group; `codes` gives each row's, and `code` the instructions of some kernels.

    None for a table of another kind than Nsight Compute.
    """
    said = details(frame, facts)
    if not said:
        return None
    rows = np.argsort(codes, kind="stable")
    parts = np.split(rows, np.cumsum(np.bincount(codes, minlength=groups))[:-1])
    columns = _columns(frame)
    order = frame["order"].to_numpy(int)
    by_order = {one.order: one for one in code}
    own = [next((by_order[at] for at in order[part].tolist() if at in by_order), None) for part in parts]
    count = multiprocessors(facts)
    return [_of_group(columns, said, part, count, its_code) for part, its_code in zip(parts, own, strict=True)]


def _columns(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    names = ("duration_ns", "registers", "shared_bytes", "waves", "occupancy", "tensor_active")
    found = {name: frame[name].to_numpy(float, na_value=np.nan) for name in names}
    for what in ("grid", "block"):
        sizes = [frame[f"{what}_{axis}"].to_numpy(float, na_value=np.nan) for axis in "xyz"]
        found[what] = sizes[0] * sizes[1] * sizes[2]
    return found


def _of_group(
    columns: Mapping[str, np.ndarray],
    said: Sequence[dict[str, Any]],
    rows: Integers,
    multiprocessors: int | None,
    code: KernelCode | None,
) -> Counters:
    time = columns["duration_ns"][rows]
    longest = int(rows[int(np.argmax(time))])
    facts = [said[i] for i in rows.tolist()]

    def one(name: str) -> float | None:
        return _known(float(columns[name][longest]))

    def mean(values: Sequence[float | None]) -> float | None:
        return _mean(np.array(values, dtype=float), time)

    def share(level: str) -> float | None:
        return mean([f.get("busy", {}).get(level) for f in facts])

    busy = {name: share(level) for level, name in _LEVELS.items()} | {
        "DRAM": mean([f.get("dram_share") for f in facts])
    }
    return Counters(
        blocks=one("grid"),
        threads=one("block"),
        registers=one("registers"),
        shared_bytes=one("shared_bytes"),
        waves=one("waves"),
        multiprocessors=multiprocessors,
        occupancy=mean([f.get("occupancy") for f in facts]),
        theoretical=mean([f.get("theoretical_occupancy") for f in facts]),
        limits=said[longest].get("occupancy_limits") or {},
        sectors=_sum([f.get("sectors") for f in facts]),
        excessive=_sum([f.get("excessive_sectors") for f in facts]),
        local=_sum([f.get("local_sectors") for f in facts]),
        spills=_sum([f.get("spills") for f in facts]),
        warp_threads=mean([f.get("warp_threads") for f in facts]),
        warp_threads_on=mean([f.get("warp_threads_on") for f in facts]),
        evenness=mean([f.get("evenness") for f in facts]),
        tensor_active=_mean(columns["tensor_active"][rows], time),
        busy={name: value for name, value in busy.items() if value is not None},
        ceilings=said[longest].get("ceilings") or {},
        stalls=_stalls([f.get("stalls") or {} for f in facts], time),
        code=code,
    )


def _stalls(each: Sequence[Mapping[str, float]], time: np.ndarray) -> dict[str, float]:
    """Shares of all stalled cycles by reason, weighted by time, the largest first."""
    shares: dict[str, float] = {}
    weight = 0.0
    for stalls, ns in zip(each, time.tolist(), strict=True):
        total = sum(stalls.values())
        if total > 0:
            weight += ns
            for reason, value in stalls.items():
                shares[reason] = shares.get(reason, 0.0) + ns * value / total
    return {k: v / weight for k, v in sorted(shares.items(), key=lambda item: -item[1])} if weight else {}


def _mean(values: np.ndarray, weights: np.ndarray) -> float | None:
    known = np.isfinite(values) & (weights > 0)
    return float((values[known] * weights[known]).sum() / weights[known].sum()) if known.any() else None


def _sum(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if known and len(known) == len(values) else None


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
