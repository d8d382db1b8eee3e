"""Joining the counters of an Nsight Compute report onto the rows of a trace of the same workload.

The trace knows when each kernel ran, undisturbed by counters, and where in the model it belongs. The report knows what
the hardware counted, while kernels were serialised, run several times each, and met emptied caches. A row of the trace
and a kernel of the report are the same launch when function, grid, block and template arguments agree and the order of
launches leaves no other choice (`perfkit.tree.sequences`); what is ambiguous stays without counters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfkit.errors import InputError
from perfkit.readers.finish import UNKNOWN_WORK, uncosted
from perfkit.readers.join_facts import KERNEL, facts_of, sentences
from perfkit.readers.join_keys import Keys, keys
from perfkit.table import FLOP_COLUMNS, MEASURE_GROUPS, KernelTable, conform
from perfkit.tree.sequences import Booleans, Integers, align

if TYPE_CHECKING:
    import pandas as pd

_GROUPS = ("dram", "l2", "l1", "tensor", "instructions")  # measures that only counters have
_LAUNCH = ("registers", "shared_bytes", "occupancy", "waves")
_MATRIX = [name for name in FLOP_COLUMNS if name.startswith("flop_matrix_")]
_TRIED = 8  # captured steps that are tried for one that fits


def join(trace: KernelTable, counters: KernelTable, *, ceilings: bool = True, one_layer: int = 0) -> KernelTable:
    """The rows of `trace` with the counters of `counters` where the kernel is certainly the same.

    Times, place and minimal bytes stay the trace's; the measures of device memory, caches, tensor pipe, instructions
    and FLOP become the report's, with their origins. Each step of the trace is matched by itself: counters of one step
    serve every step. With `one_layer` the report is of a model with a single layer, and its counters serve each of the
    trace's layers (`one_layer` of them). With `ceilings` rows are judged by the roofs that the report holds.
    `facts["counters"]` says how many rows matched. Raises `InputError` where one of the tables has no kernels.
    """
    _check(trace, counters)
    order = _launch_order(trace.frame)
    source = _launch_order(counters.frame)
    ours, theirs = keys(trace.frame.iloc[order], counters.frame.iloc[source])
    matched = np.full(len(order), -1, np.int64)
    steps = _steps(trace.frame.iloc[order])
    captured = _captured_steps(counters.frame.iloc[source])
    served = len(captured)
    layers = trace.frame["layer"].iloc[order].to_numpy(dtype=float, na_value=np.nan)
    if len(captured) != len(steps):
        captured = [_fitting(captured, steps[0], ours, theirs, trace, counters)] * len(steps)
    for rows, columns in zip(steps, captured, strict=True):
        for part in _parts(rows, layers) if one_layer else [rows]:
            found = _matches(ours, theirs, part, columns, trace, counters)
            matched[part] = np.where(found >= 0, found, matched[part])
    row = np.full(len(trace), -1, np.int64)
    row[order] = np.where(matched >= 0, source[np.maximum(matched, 0)], -1)
    warm = _found_in_cache(trace, counters, row)
    joined = KernelTable(
        _filled(trace.frame, counters.frame, row, warm),
        _of_trace(trace.warnings),
        dict(trace.source),
        dict(trace.facts),
    )
    joined.facts |= facts_of(trace, counters, row, ceilings)
    joined.facts["counters"] |= {
        "in_cache": int(warm.sum()),
        "steps": len(steps),
        "steps_captured": served,
        "layers": one_layer,
    }
    joined.source["counters"] = counters.source.get("path", "")
    joined.warnings += [*_still_unknown(joined.frame), *sentences(joined.facts["counters"])]
    return joined.check()


def _check(trace: KernelTable, counters: KernelTable) -> None:
    if counters.facts.get("tool") != "ncu":
        raise InputError(
            f"{_path(counters)} is not a report of Nsight Compute, from which counters come.",
            "Give --counters a .ncu-rep file, or the CSV that `ncu --csv --page raw` prints.",
        )
    if not (counters.frame["kind"] == KERNEL).any():
        raise InputError(f"{_path(counters)} holds no kernels.", "Capture it again.")
    if not (trace.frame["kind"] == KERNEL).any():
        raise InputError(
            f"{_path(trace)} holds no GPU kernels that counters could belong to.", "Capture a trace of a run on a GPU."
        )
    if trace.facts.get("tool") == "ncu":
        raise InputError(
            f"{_path(trace)} is itself a report of Nsight Compute: it has no times without the profiler.",
            "Give a torch.profiler trace or a capture of Nsight Systems of the same program.",
        )


def _path(table: KernelTable) -> str:
    return table.source.get("path", "the table")


def _launch_order(frame: pd.DataFrame) -> Integers:
    """Positions of the kernels, in launch order."""
    kernels = np.flatnonzero((frame["kind"] == KERNEL).to_numpy(bool))
    order: Integers = kernels[np.argsort(frame["order"].to_numpy(np.int64)[kernels], kind="stable")]
    return order


def _steps(frame: pd.DataFrame) -> list[Integers]:
    """Positions of each step's rows; rows outside the steps belong to none; all are one step where none is marked."""
    step = frame["step"].to_numpy(dtype=float, na_value=np.nan)
    marked = np.unique(step[np.isfinite(step)])
    return [np.flatnonzero(step == s) for s in marked] if len(marked) else [np.arange(len(frame))]


def _captured_steps(frame: pd.DataFrame) -> list[Integers]:
    """The same of a report: a kernel launched by a thread without ranges is in the step of the one before it."""
    step = frame["step"].ffill()
    return _steps(frame.assign(step=step))


def _fitting(
    captured: list[Integers], rows: Integers, ours: Keys, theirs: Keys, trace: KernelTable, counters: KernelTable
) -> Integers:
    """The captured step that has most in common with a step of the trace; of equal ones the last, which is warm."""
    if len(captured) == 1:
        return captured[0]
    return max(
        reversed(captured[-_TRIED:]),
        key=lambda columns: int((_matches(ours, theirs, rows, columns, trace, counters) >= 0).sum()),
    )


def _parts(rows: Integers, layers: npt.NDArray[np.float64]) -> list[Integers]:
    """For each layer the rows of a step as a model with this layer alone would have them."""
    own = layers[rows]
    known = np.unique(own[np.isfinite(own)])
    return [rows[~np.isfinite(own) | (own == layer)] for layer in known] or [rows]


def _matches(
    ours: Keys, theirs: Keys, rows: Integers, columns: Integers, trace: KernelTable, counters: KernelTable
) -> Integers:
    """The kernel of the report that each of `rows` is, −1 for none."""
    launch, template = theirs.launch[columns], theirs.template[columns]

    def equal(i: int) -> Booleans:
        own = ours.template[rows[i]]
        same: Booleans = launch == ours.launch[rows[i]]
        return same if own < 0 else same & ((template == own) | (template < 0))

    try:
        found = align(len(rows), len(columns), equal)
    except ValueError as error:
        raise InputError(
            f"{len(rows)} kernels of a step of {_path(trace)} and {len(columns)} of {_path(counters)} are too many.",
            "Capture counters of fewer: --nvtx, --kernel-name, --launch-count.",
        ) from error
    return np.where(found >= 0, columns[np.maximum(found, 0)], -1)


def _found_in_cache(trace: KernelTable, counters: KernelTable, row: Integers) -> Booleans:
    """Rows that would have moved the counted bytes of device memory faster than it can.

    They were counted with empty caches, and found their data in L2 when they were traced.
    """
    stored = (counters.facts.get("row_ceilings") or {}).get("memory") or []
    ceiling = np.array([np.nan if v is None else v for v in stored], dtype=float)
    if not len(ceiling):
        return np.zeros(len(row), bool)
    at = np.maximum(row, 0)
    counted = counters.frame["dram_bytes"].to_numpy(float)[at]
    roof = ceiling[counters.frame["order"].to_numpy(np.int64)[at]]
    time = trace.frame["duration_ns"].to_numpy(float)
    warm: Booleans = (row >= 0) & (counted / roof * 1e9 > time)
    return warm


def _filled(trace: pd.DataFrame, counters: pd.DataFrame, row: Integers, warm: Booleans) -> pd.DataFrame:
    """The trace's rows with the columns of the counters' rows that they were matched with.

    Rows that are `warm` get no bytes of device memory: what was counted is not what they moved.
    """
    frame = trace.reset_index(drop=True).copy()
    at = np.flatnonzero(row >= 0)
    other = counters.iloc[row[at]].set_index(at)
    for group in _GROUPS:
        columns = [*MEASURE_GROUPS[group], f"{group}_origin"]
        known = (other[f"{group}_origin"].astype(object) != "absent").to_numpy(bool)
        if group == "dram":
            known = known & ~warm[at]
        _set(frame, other[known], columns)
    _set(frame, other[_flop_known(frame.iloc[at], other)], [*FLOP_COLUMNS, "flop_origin"])
    for column in _LAUNCH:
        _set(frame, other[other[column].notna()], [column])
    return conform(frame)


def _set(frame: pd.DataFrame, other: pd.DataFrame, columns: list[str]) -> None:
    for column in columns:
        values = frame[column].astype(object)
        values.loc[other.index] = other[column].astype(object)
        frame[column] = values


def _flop_known(ours: pd.DataFrame, theirs: pd.DataFrame) -> Booleans:
    """Return which rows' work the report counted: not those where it lacks that of matrix units, which the model
    has."""
    counted = (theirs["flop_origin"].astype(object) != "absent").to_numpy(bool)
    modelled = (ours[_MATRIX].fillna(0) > 0).any(axis=1).to_numpy(bool)
    matrix = theirs[_MATRIX].notna().any(axis=1).to_numpy(bool)
    known: Booleans = counted & (matrix | ~modelled)
    return known


def _of_trace(warnings: list[str]) -> list[str]:
    """The trace's warnings but the one of unknown work, which counters may have made known."""
    return [w for w in warnings if not w.startswith(UNKNOWN_WORK)]


def _still_unknown(frame: pd.DataFrame) -> list[str]:
    """That warning about the rows that have no counters either."""
    counted = frame[["dram_bytes", "l2_read_bytes", *FLOP_COLUMNS]].notna().any(axis=1)
    rows = frame[~counted & frame["duration_ns"].notna()]
    columns = {name: rows[name].to_numpy() for name in ("bytes_read", "name")}
    columns |= {name: rows[name].astype(object).to_numpy() for name in ("kind", "family")}
    total = float(frame["duration_ns"].sum())
    return uncosted({**columns, "duration_ns": rows["duration_ns"].to_numpy(float)}, total)
