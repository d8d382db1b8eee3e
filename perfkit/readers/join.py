"""Joining the counters of an Nsight Compute report onto the rows of a trace of the same workload.

The trace knows when each kernel ran, undisturbed by counters, and where in the model it belongs. The report knows what
the hardware counted, while kernels were serialised, run several times each, and met emptied caches. A row of the trace
and a kernel of the report are the same launch when function, grid, block and template arguments agree and the order of
launches leaves no other choice (`perfkit.readers.alignment`); what is ambiguous stays without counters.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfkit.errors import InputError
from perfkit.readers import kineto_columns
from perfkit.readers.alignment import Booleans, Integers, align
from perfkit.table import FLOP_COLUMNS, MEASURE_GROUPS, KernelTable, conform

if TYPE_CHECKING:
    import pandas as pd

KERNEL = "gpu_kernel"
_SIZES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
_GROUPS = ("dram", "l2", "l1", "tensor", "instructions")  # measures that only counters have
_LAUNCH = ("registers", "shared_bytes", "occupancy", "waves")
_MATRIX = [name for name in FLOP_COLUMNS if name.startswith("flop_matrix_")]
_SHOWN = 5
_TRIED = 8  # captured steps that are tried for one that fits

# In the spelling of template arguments the tools differ in casts, placeholders, unnamed things and lambdas.
_CAST = re.compile(r"\((?:unsigned |signed )?(?:bool|char|short|int|long|long long)\)")
_TYPES = "void|const|volatile|unsigned|signed|int|long|short|char|bool|true|false|restrict|__restrict__"
_SYNTAX = "anonymous|namespace|unnamed|lambda|instance|operator|typename|class|struct|enum|decltype|auto"
_NOISE = frozenset(f"{_TYPES}|{_SYNTAX}".split("|"))
_WORD = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_]\w*")
_PLACEHOLDER = re.compile(r"T\d+")


@dataclass(frozen=True)
class _Keys:
    """What tells launches apart: codes of (function, grid, block), and of the template arguments (−1: not told)."""

    launch: Integers
    template: Integers


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
    ours, theirs = _keys(trace.frame.iloc[order], counters.frame.iloc[source])
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
    joined.facts |= _facts(trace, counters, row, ceilings)
    joined.facts["counters"] |= {
        "in_cache": int(warm.sum()),
        "steps": len(steps),
        "steps_captured": served,
        "layers": one_layer,
    }
    joined.source["counters"] = counters.source.get("path", "")
    joined.warnings += [*_still_unknown(joined.frame), *_sentences(joined.facts["counters"])]
    return joined.check()


def _check(trace: KernelTable, counters: KernelTable) -> None:
    if counters.facts.get("tool") != "ncu":
        raise InputError(
            f"{_path(counters)} is no report of Nsight Compute, and counters come from one.",
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
    captured: list[Integers], rows: Integers, ours: _Keys, theirs: _Keys, trace: KernelTable, counters: KernelTable
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
    ours: _Keys, theirs: _Keys, rows: Integers, columns: Integers, trace: KernelTable, counters: KernelTable
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


def _keys(trace: pd.DataFrame, counters: pd.DataFrame) -> tuple[_Keys, _Keys]:
    """Codes that are equal in both for launches that may be the same."""
    launches: dict[Any, int] = {}
    templates: dict[Any, int] = {}
    found = []
    for frame in (trace, counters):
        sizes = frame[list(_SIZES)].astype(object).where(frame[list(_SIZES)].notna(), None).to_numpy()
        names, short = frame["name"].tolist(), frame["short_name"].fillna(frame["name"]).tolist()
        parts: dict[str, frozenset[str] | None] = {name: template_words(name) for name in set(names)}
        found.append(
            _Keys(
                np.array(
                    [launches.setdefault((s, *z), len(launches)) for s, z in zip(short, sizes.tolist(), strict=True)],
                    dtype=np.int64,
                ),
                np.array(
                    [-1 if (p := parts[n]) is None else templates.setdefault(p, len(templates)) for n in names],
                    dtype=np.int64,
                ),
            )
        )
    return found[0], found[1]


def template_words(name: str) -> frozenset[str] | None:
    """The names in the template arguments of a kernel, without what the tools spell differently; None without any.

    `void scale<float>(float*, int)` and `void scale<float>(T1 *, int)` both give {"float"}.
    """
    start, depth = name.find("<"), 0
    while name.startswith(("<unnamed>", "<lambda"), start) and start >= 0:
        start = name.find("<", start + 1)
    if start < 0:
        return None
    for end in range(start, len(name)):
        depth += (name[end] == "<") - (name[end] == ">" and name[end - 1] != "-")
        if depth == 0:
            break
    inside = _CAST.sub("", name[start : end + 1])
    return frozenset(w for w in _WORD.findall(inside) if w not in _NOISE and not _PLACEHOLDER.fullmatch(w))


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
    """Where the report counted the work: not where it lacks that of matrix units, which the model has."""
    counted = (theirs["flop_origin"].astype(object) != "absent").to_numpy(bool)
    modelled = (ours[_MATRIX].fillna(0) > 0).any(axis=1).to_numpy(bool)
    matrix = theirs[_MATRIX].notna().any(axis=1).to_numpy(bool)
    known: Booleans = counted & (matrix | ~modelled)
    return known


def _facts(trace: KernelTable, counters: KernelTable, row: Integers, ceilings: bool) -> dict[str, Any]:
    """What the report knows, laid out for the trace's rows, and how well the two fit."""
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
        "report": Path(_path(counters)).name,
        "matched": int((row >= 0).sum()),
        "kernels": int(kernels.sum()),
        "matched_time": float(time[row >= 0].sum()) / total if total else None,
        "captured": int((counters.frame["kind"] == KERNEL).sum()),
        "unused": len(theirs),
        "without_counters": _names(frame, np.flatnonzero(kernels & (row < 0))),
        "without_row": _names(counters.frame, theirs),
    }


def _of_trace(warnings: list[str]) -> list[str]:
    """The trace's warnings but the one of unknown work, which counters may have made known."""
    return [w for w in warnings if not w.startswith(kineto_columns.UNKNOWN_WORK)]


def _still_unknown(frame: pd.DataFrame) -> list[str]:
    """That warning about the rows that have no counters either."""
    counted = frame[["dram_bytes", "l2_read_bytes", *FLOP_COLUMNS]].notna().any(axis=1)
    rows = frame[~counted & frame["duration_ns"].notna()]
    columns = {name: rows[name].to_numpy() for name in ("bytes_read", "name")}
    columns |= {name: rows[name].astype(object).to_numpy() for name in ("kind", "family")}
    total = float(frame["duration_ns"].sum())
    return kineto_columns.uncosted({**columns, "duration_ns": rows["duration_ns"].to_numpy(float)}, total)


def _names(frame: pd.DataFrame, at: Integers) -> list[list[Any]]:
    """The kernels at `at` by short name, the most frequent first: [name, count]."""
    names = frame["short_name"].fillna(frame["name"]).iloc[at].tolist()
    return [[name[:200], count] for name, count in Counter(names).most_common(50)]


def _sentences(told: dict[str, Any]) -> list[str]:
    """What to know before using the joined numbers."""
    share = f" ({100 * told['matched_time']:.1f}% of their time)" if told["matched_time"] is not None else ""
    said = [
        f"counters of {told['report']} joined onto {told['matched']} of {told['kernels']} kernels{share} by name, "
        "grid, block and launch order; times are those of the trace, while kernels were counted one by one, replayed, "
        "with caches flushed: what a kernel finds in L2 otherwise counts as bytes of device memory"
    ]
    if told["layers"]:
        said.append(
            f"scaled: the counters are of a model with one layer and serve each of the {told['layers']} layers alike"
        )
    if told["in_cache"]:
        said.append(
            f"{told['in_cache']} of them ran faster than device memory could move the bytes that were counted with "
            "empty caches: they found data in L2, and what they moved is unknown (--cache-control none does not empty "
            "them)"
        )
    if told["steps"] > 1 and told["steps_captured"] != told["steps"]:
        said.append(f"the counters are of one step and serve all {told['steps']} steps of the trace")
    for key, what in (("without_counters", "without counters"), ("without_row", "captured, but not placed")):
        names = told[key]
        if names:
            shown = ", ".join(f"{name[:60]} ×{count}" if count > 1 else name[:60] for name, count in names[:_SHOWN])
            rest = sum(count for _, count in names[_SHOWN:])
            said.append(f"{what}: {shown}{f' and {rest} more' if rest else ''}")
    return said
