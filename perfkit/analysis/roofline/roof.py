"""The roofline: how long each row of the kernel table must take at least on this machine.

    roof time = max over resources of work / ceiling        (resources: memory, and every arithmetic unit)

Memory work is the bytes of device memory that counters saw, else the minimal bytes; which level of memory judges them
is said in `perfkit.analysis.roofline.memory`. A report of Nsight Compute holds ceilings of its own, a set for each
kernel at the clock that it ran at (`StoredCeilings`): these judge its rows. A resource whose work or ceiling is
unknown is not judged; a row with no judged resource has no roof (NaN), and counts in no efficiency. A matrix unit
that was not measured has the datasheet's rate for a ceiling; a product whose unit has neither has no roof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit import units
from perfkit.analysis.roofline.memory import TOLERANCE, Booleans, Bytes, Integers, Reals, in_caches, memory_roof
from perfkit.analysis.roofline.reuse import uses
from perfkit.numbers import median
from perfkit.table import FLOP_COLUMNS, RESOURCES

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.hardware.ceilings import Ceilings

MEMORY, L2 = "memory", "l2"
DATASHEET = "(datasheet)"  # in the name of a ceiling that was not measured
BOUNDS = (MEMORY, *RESOURCES, L2)
ARITHMETIC = tuple(range(1, 1 + len(RESOURCES)))  # the places of the arithmetic units
_LAST = len(BOUNDS) - 1  # the place of L2
_MATRIX = [i for i, resource in enumerate(RESOURCES) if resource.startswith("matrix_")]


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
        """Return the `row_ceilings` of a table's facts for the rows in `frame`, found by launch order."""
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
            self._text(resource, median(rates)) if len(rates) else ""
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
    """Arrays over the rows of a table. Times in ns; NaN and −1 mean unknown.

    `bytes` is what counters saw, else minimal bytes. `bound` indexes `BOUNDS`, `ceiling` the texts in `ceilings`;
    `resource` indexes `RESOURCES`: the arithmetic unit that does most of the row's work. `above` are rows faster than
    their roof allows, `helped` those that are not, because a cache held a part of their bytes: they count as at it.
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
    helped: Booleans

    @property
    def judged(self) -> Booleans:
        """Rows that have a roof and a time."""
        return np.isfinite(self.roof) & np.isfinite(self.time)

    @property
    def headroom(self) -> Reals:
        """The time above the roof, per row; 0 for rows faster than it, NaN without a roof."""
        return np.where(self.judged, np.maximum(self.time - self.roof, 0.0), np.nan)


def judge(frame: pd.DataFrame, ceilings: Ceilings | StoredCeilings | None) -> Judged:
    """Roof time, bound and ceiling of every row; without ceilings every roof is unknown."""
    of = Bytes.of(frame)
    by_unit = frame[list(FLOP_COLUMNS)].to_numpy(float)
    roofs = np.full((len(frame), len(BOUNDS)), np.nan)
    text, memory = np.full(len(BOUNDS), -1, np.int64), None
    texts: list[str] = []
    if isinstance(ceilings, StoredCeilings):
        from_l2 = frame["l2_read_bytes"].to_numpy(float)  # the direction that the stored L2 roof is of
        roofs = np.column_stack([of.moved, by_unit, from_l2]) / ceilings.rates * 1e9
        text, texts = np.arange(len(BOUNDS)), ceilings.texts()
    elif ceilings is not None:
        memory = memory_roof(of, uses(frame, in_caches(of, ceilings)), ceilings)
        texts = list(memory.texts)
        text = _compute_roofs(roofs, by_unit, ceilings, texts)
        roofs[:, 0] = np.where(memory.by_l2, np.nan, memory.time)
        roofs[:, _LAST] = np.where(memory.by_l2, memory.time, np.nan)
    # Memory alone would judge a matrix product by what hardly bounds it.
    without = (by_unit[:, _MATRIX] > 0) & ~np.isfinite(roofs[:, 1 : 1 + len(RESOURCES)][:, _MATRIX])
    known = np.isfinite(roofs).any(axis=1) & ~without.any(axis=1)
    bound = np.where(known, np.argmax(np.where(np.isfinite(roofs), roofs, -1.0), axis=1), -1)
    roof = np.where(known, roofs[np.arange(len(frame)), np.maximum(bound, 0)], np.nan)
    above = np.isfinite(roof) & (roof > (1 + TOLERANCE) * of.time)
    by_memory = (bound == 0) | (bound == _LAST)
    ceiling, helped = np.where(bound >= 0, text[bound], -1), np.zeros(len(frame), bool)
    if memory is not None:
        ceiling, helped = np.where(by_memory, memory.text, ceiling), memory.helped & by_memory & ~above
    return Judged(
        time=of.time,
        flop=_row_sum(by_unit),
        bytes=of.moved,
        counters=of.counted,
        roof=roof,
        bound=bound,
        ceiling=ceiling,
        ceilings=texts,
        resource=_main_unit(by_unit),
        above=above,
        helped=helped,
    )


def _row_sum(values: Reals) -> Reals:
    """Sum over known values; NaN where none is."""
    known = np.isfinite(values)
    return np.where(known.any(axis=1), np.where(known, values, 0.0).sum(axis=1), np.nan)


def _main_unit(by_unit: Reals) -> Integers:
    amounts = np.nan_to_num(by_unit)
    return np.where(amounts.any(axis=1), np.argmax(amounts, axis=1), -1)


def _compute_roofs(roofs: Reals, by_unit: Reals, ceilings: Ceilings, texts: list[str]) -> Integers:
    """Fill the compute columns of `roofs`; returns for each bound the index of its text, which is appended."""
    index = np.full(len(BOUNDS), -1, np.int64)
    for column, resource in enumerate(RESOURCES, start=1):
        rate, label = rate_of(resource, ceilings)
        if not rate:
            continue
        roofs[:, column] = by_unit[:, column - 1] / rate * 1e9
        index[column] = len(texts)
        texts.append(f"{label}, {units.text(rate, 'FLOP/s')}")
    return index


def unit_name(resource: str) -> str:
    """An arithmetic unit in words: `matrix_fp32` → fp32 matmul, `vector_int` → int vector."""
    kind, _, dtype = resource.partition("_")
    return f"{dtype} {'matmul' if kind == 'matrix' else kind}"


def rate_of(resource: str, ceilings: Ceilings) -> tuple[float | None, str]:
    """The ceiling of an arithmetic unit in FLOP/s, and its name: measured, of a matrix unit else the datasheet's; the
    datasheet's where nothing was measured."""
    measured = ceilings.compute.get(resource)
    if ceilings.on_paper:
        return measured, f"{unit_name(resource)} {DATASHEET}"
    if measured or not resource.startswith("matrix_"):
        return measured, unit_name(resource)
    return ceilings.datasheet.get(resource), f"{unit_name(resource)} {DATASHEET}"
