"""The roofline: how long each row of the kernel table must take at least on this machine.

    roof time = max over resources of work / ceiling        (resources: memory, and every arithmetic unit)

Memory work is the bytes of device memory that counters saw, else the minimal bytes. On a CPU the memory ceiling depends
on the row's working set, its minimal bytes. A report of Nsight Compute holds ceilings of its own, a set for each kernel
at the clock that it ran at (`StoredCeilings`): these judge its rows. A resource whose work or ceiling is unknown is not
judged; a row with no judged resource has no roof (NaN), and counts in no efficiency. Nor has a matrix product whose
unit has no ceiling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfkit import units
from perfkit.table import FLOP_COLUMNS, RESOURCES

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.hardware.ceilings import Ceilings

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

MEMORY, L2 = "memory", "l2"
BOUNDS = (MEMORY, *RESOURCES, L2)
_MATRIX = [i for i, resource in enumerate(RESOURCES) if resource.startswith("matrix_")]
TOLERANCE = 0.05  # a row this much faster than its roof is noise; beyond it the measurement or the model is broken


@dataclass(frozen=True)
class StoredCeilings:
    """Ceilings that a profile holds for each of its rows.

    `rates` has a row for each row of the table and a column for each of `BOUNDS`, in bytes/s and FLOP/s, NaN where
    unknown; `when` says what they hold for, such as "at the captured clock".
    """

    rates: Reals
    when: str

    @classmethod
    def of(cls, facts: Mapping[str, Any], frame: pd.DataFrame) -> StoredCeilings | None:
        """Those in the `row_ceilings` of a table's facts for the rows in `frame`, found by launch order."""
        stored = facts.get("row_ceilings")
        if not stored:
            return None
        order = frame["order"].to_numpy(np.int64)
        rates = np.full((len(frame), len(BOUNDS)), np.nan)
        for column, resource in enumerate(BOUNDS):
            if resource in stored:
                rates[:, column] = np.array(stored[resource], dtype=float)[order]
        return cls(rates, facts.get("ceilings_hold", ""))

    def texts(self) -> list[str]:
        """A name for each of `BOUNDS` with its median over the rows; "" for one that is unknown."""
        known = [column[np.isfinite(column)] for column in self.rates.T]
        return [
            self._text(resource, float(np.median(rates))) if len(rates) else ""
            for resource, rates in zip(BOUNDS, known, strict=True)
        ]

    def _text(self, resource: str, rate: float) -> str:
        if resource == MEMORY:
            return f"DRAM {self.when} ({rate / 1e9:.0f} GB/s)"
        if resource == L2:
            return f"L2 reads {self.when} ({rate / 1e9:.0f} GB/s)"
        return f"{unit_name(resource)} {self.when} ({units.text(rate, 'FLOP/s')})"


@dataclass
class Judged:
    """Arrays over the rows of a table. Times in ns; NaN and −1 stand for unknown.

    `bytes` is what counters saw, else minimal bytes. `bound` indexes `BOUNDS`, `ceiling` the texts in `ceilings`;
    `resource` indexes `RESOURCES`: the arithmetic unit that does most of the row's work.
    """

    time: Reals
    flop: Reals
    bytes: Reals
    counters: Booleans
    roof: Reals
    bound: Integers
    ceiling: Integers
    ceilings: list[str]
    resource: Integers
    above: Booleans

    @property
    def judged(self) -> Booleans:
        """Rows that have a roof and a time."""
        return np.isfinite(self.roof) & np.isfinite(self.time)

    @property
    def headroom(self) -> Reals:
        """What reaching the roof would save, per row; 0 for rows above it, NaN where there is none."""
        return np.where(self.judged, np.maximum(self.time - self.roof, 0.0), np.nan)


def judge(frame: pd.DataFrame, ceilings: Ceilings | StoredCeilings | None) -> Judged:
    """Roof time, bound and ceiling of every row; without ceilings every roof is unknown."""
    time = frame["duration_ns"].to_numpy(float)
    by_unit = frame[list(FLOP_COLUMNS)].to_numpy(float)
    minimal = _total(frame, "bytes_read", "bytes_written")
    counted = frame["dram_bytes"].to_numpy(float)
    counted = np.where(np.isfinite(counted), counted, _total(frame, "dram_read_bytes", "dram_write_bytes"))
    counters = np.isfinite(counted)
    traffic = np.where(counters, counted, minimal)
    roofs = np.full((len(frame), len(BOUNDS)), np.nan)
    memory_text = np.full(len(frame), -1, np.int64)
    texts: list[str] = []
    if isinstance(ceilings, StoredCeilings):
        from_l2 = frame["l2_read_bytes"].to_numpy(float)  # the direction that the stored L2 roof is of
        roofs = np.column_stack([traffic, by_unit, from_l2]) / ceilings.rates * 1e9
        memory_text, compute_text, texts = memory_text + 1, np.arange(len(BOUNDS)), ceilings.texts()
    elif ceilings is not None:
        roofs[:, 0], memory_text, texts = _memory_roof(frame, traffic, minimal, counters, ceilings)
        compute_text = _compute_roofs(roofs, by_unit, ceilings, texts)
    else:
        compute_text = np.full(len(BOUNDS), -1, np.int64)
    # Memory alone would judge a matrix product by what hardly bounds it.
    without = (by_unit[:, _MATRIX] > 0) & ~np.isfinite(roofs[:, 1 : 1 + len(RESOURCES)][:, _MATRIX])
    known = np.isfinite(roofs).any(axis=1) & ~without.any(axis=1)
    bound = np.where(known, np.argmax(np.where(np.isfinite(roofs), roofs, -1.0), axis=1), -1)
    roof = np.where(known, roofs[np.arange(len(frame)), np.maximum(bound, 0)], np.nan)
    return Judged(
        time=time,
        flop=_row_sum(by_unit),
        bytes=traffic,
        counters=counters,
        roof=roof,
        bound=bound,
        ceiling=np.where(bound == 0, memory_text, np.where(bound > 0, compute_text[np.maximum(bound, 0)], -1)),
        ceilings=texts,
        resource=_main_unit(by_unit),
        above=np.isfinite(roof) & (roof > (1 + TOLERANCE) * time),
    )


def _total(frame: pd.DataFrame, read: str, written: str) -> Reals:
    """Read plus written bytes; NaN where either is unknown."""
    return frame[read].to_numpy(float) + frame[written].to_numpy(float)


def _row_sum(values: Reals) -> Reals:
    """Sum over known values; NaN where none is."""
    known = np.isfinite(values)
    return np.where(known.any(axis=1), np.where(known, values, 0.0).sum(axis=1), np.nan)


def _main_unit(by_unit: Reals) -> Integers:
    amounts = np.nan_to_num(by_unit)
    return np.where(amounts.any(axis=1), np.argmax(amounts, axis=1), -1)


def _memory_roof(
    frame: pd.DataFrame, traffic: Reals, minimal: Reals, counters: Booleans, ceilings: Ceilings
) -> tuple[Reals, Integers, list[str]]:
    """Memory time of each row, the index of its ceiling's text, and the texts.

    Bytes that a counter saw pass main memory are judged by main memory; minimal bytes by the level that the row's
    distinct bytes fit. An operator in place writes into what it read: its distinct bytes are those it reads, and it has
    a roof of its own. Any other writes into storage of its own.
    """
    in_place = _in_place(frame) & ~counters
    rates, index, texts = np.full(len(traffic), np.nan), np.full(len(traffic), -1, np.int64), list[str]()
    known = np.isfinite(traffic)
    for rows, working_set, mode in ((~in_place, minimal, False), (in_place, frame["bytes_read"].to_numpy(float), True)):
        curve = ceilings.envelope(mode)
        if not curve:
            continue
        sizes, roofs = np.array([s for s, _ in curve]), np.array([r for _, r in curve])
        level = np.clip(np.searchsorted(sizes, np.nan_to_num(working_set), side="right") - 1, 0, None)
        level = np.where(counters, len(sizes) - 1, level)
        rates = np.where(rows, roofs[level], rates)
        index = np.where(rows & known, level + len(texts), index)
        texts += [f"{ceilings.bandwidth_for(s, mode).name}, {units.text(r, 'B/s')}" for s, r in curve]
    return traffic / rates * 1e9, index, texts


def _in_place(frame: pd.DataFrame) -> Booleans:
    """By PyTorch's convention an operator in place ends in _; a copy or a fill overwrites what it does not read. An
    optimizer's kernels update parameters and state in place, whatever they are called."""
    overwrites = frame["family"].isin(("copy", "fill", "random")).to_numpy(bool)
    optimizer = (frame["family"] == "optimizer").to_numpy(bool)
    in_place: Booleans = frame["name"].str.endswith("_").to_numpy(bool) & ~overwrites | optimizer
    return in_place


def _compute_roofs(roofs: Reals, by_unit: Reals, ceilings: Ceilings, texts: list[str]) -> Integers:
    """Fill the compute columns of `roofs`; returns for each bound the index of its text, which is appended."""
    index = np.full(len(BOUNDS), -1, np.int64)
    for column, resource in enumerate(RESOURCES, start=1):
        rate = ceilings.compute.get(resource)
        if not rate:
            continue
        roofs[:, column] = by_unit[:, column - 1] / rate * 1e9
        index[column] = len(texts)
        texts.append(_compute_text(ceilings, resource))
    return index


def unit_name(resource: str) -> str:
    """An arithmetic unit in words: `matrix_fp32` → fp32 matmul, `vector_int` → int vector."""
    kind, _, dtype = resource.partition("_")
    return f"{dtype} {'matmul' if kind == 'matrix' else kind}"


def _compute_text(ceilings: Ceilings, resource: str) -> str:
    return f"{unit_name(resource)}, {units.text(ceilings.compute[resource], 'FLOP/s')}"
