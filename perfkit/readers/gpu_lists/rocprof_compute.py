"""Counters of AMD's rocprof-compute (Omniperf): `pmc_perf.csv`, a row a dispatch, onto the columns of the kernel table.

FLOP by AMD's formulas: 64 lanes of each vector instruction, two FLOP of a fused multiply-add, 512 of each MOPS of
matrix cores. Bytes of device memory are requests of L2 to it, of 32, 64 or (MI300) 128 bytes. What lacks a counter is
unknown. Dispatches ran several times, a pass each, so that their times make no timeline.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perfkit import table
from perfkit.cost import CostModel
from perfkit.errors import InputError
from perfkit.readers.finish import finish
from perfkit.readers.gpu_lists import whole
from perfkit.readers.gpu_lists.csv_rows import Row, cells_of, rows_of
from perfkit.table import FLOP_COLUMNS

AGAIN = "Record it again: `rocprof-compute profile --name NAME -- COMMAND`."
_NAMES, _STARTS, _ENDS = ("kernel_name", "kernelname"), ("start_timestamp", "beginns"), ("end_timestamp", "endns")
_MARKS = ("sq_waves", "grbm_gui_active", "sq_busy_cycles")
_LANES, _MOPS = 64, 512
_VECTOR = {"fp16": "f16", "fp32": "f32", "fp64": "f64"}
_MATRIX = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64", "int8": "i8", "fp8": "f8"}
_OPTIONAL = ("f8",)  # which older GPUs do not have
_CHANNEL = re.compile(r"(\w+)\[\d+\]")
Counters = Mapping[str, float]


def is_header(line: str) -> bool:
    """Return whether a line is the header of counters of dispatches."""
    found = {cell.lower() for cell in cells_of(line)}
    return bool(found & set(_NAMES)) and any(mark in found for mark in _MARKS)


def read_counters(path: Path) -> table.KernelTable:
    """Read the counters at `path`. Raises `InputError` where no dispatch has a time."""
    rows = [_row({name.lower(): value for name, value in row.items()}) for row in rows_of(path, is_header)[1]]
    good = [row for row in rows if row is not None]
    if not good:
        raise InputError(f"{path} has counters of rocprof-compute, and no dispatch with a time.", AGAIN)
    columns: dict[str, Any] = {name: [row.get(name) for row in good] for name in {n for row in good for n in row}}
    for name in ("duration_ns", "dram_read_bytes", "dram_write_bytes", *FLOP_COLUMNS):
        columns[name] = np.array([row.get(name, math.nan) for row in good], float)
    known = np.isfinite(columns["flop_vector_fp32"])
    columns["flop_origin"] = np.where(known, "derived", "absent")
    both = np.isfinite(columns["dram_read_bytes"] + columns["dram_write_bytes"])
    columns["dram_origin"] = np.where(both, "derived", "absent")
    columns |= {name: [None] * len(good) for name in ("module", "operator", "pass")}
    columns |= {"kind": ["gpu_kernel"] * len(good), "step": np.full(len(good), -1)}
    finish(columns, CostModel(), {}, {}, "")
    said = ["dispatches ran once for each pass of counters: their times make no timeline, and steps are unknown"]
    if len(good) < len(rows):
        said.append(f"{len(rows) - len(good)} rows are damaged or have no times, and are left out")
    return table.build(columns, said, {"path": str(path), "reader": "rocprof-compute"}, {"steps": 1})


def _row(row: Row) -> dict[str, Any] | None:
    """The columns of a dispatch; None without a name and a time."""
    name = next((row[n] for n in _NAMES if row.get(n)), "")
    start, end = (next((whole(row[n]) for n in names if n in row), None) for names in (_STARTS, _ENDS))
    if not name or start is None or end is None or not 0 < end - start < 2**50:
        return None
    device = next((whole(row[n]) for n in ("gpu_id", "gpu-id") if n in row), None)
    counters = _counters(row)
    read, written = _dram(counters)
    return {
        "name": name.removesuffix(".kd"),
        "device": "cuda" if device is None else f"cuda:{device}",
        "duration_ns": float(end - start),
        "registers": next((whole(row[n]) for n in ("arch_vgpr", "vgpr") if n in row), None),
        "dram_read_bytes": read,
        "dram_write_bytes": written,
        **_flop(counters),
    }


def _counters(row: Row) -> dict[str, float]:
    """The counters of a dispatch by name in lower case; those of channels also as their sum."""
    found: dict[str, float] = {}
    sums: dict[str, float] = {}
    for name, text in row.items():
        try:
            value = float(text)
        except ValueError:
            continue
        if not math.isfinite(value) or value < 0:
            continue
        found[name] = value
        if channel := _CHANNEL.fullmatch(name):
            sums[f"{channel[1]}_sum"] = sums.get(f"{channel[1]}_sum", 0.0) + value
    return sums | found


def _flop(counters: Counters) -> dict[str, float]:
    """FLOP by unit; nothing where a counter is missing, for the rest would pass for all."""
    vector, matrix = {}, {}
    for unit, suffix in _VECTOR.items():
        add, mul, fma, trans = (counters.get(f"sq_insts_valu_{op}_{suffix}") for op in ("add", "mul", "fma", "trans"))
        if add is None or mul is None or fma is None or trans is None:
            return {}
        vector[unit] = _LANES * (add + mul + 2 * fma + trans)
    for unit, suffix in _MATRIX.items():
        mops = counters.get(f"sq_insts_valu_mfma_mops_{suffix}")
        if mops is None and suffix not in _OPTIONAL:
            return {}
        matrix[unit] = _MOPS * (mops or 0.0)
    return {f"flop_vector_{u}": v for u, v in vector.items()} | {f"flop_matrix_{u}": v for u, v in matrix.items()}


def _dram(counters: Counters) -> tuple[float, float]:
    """Bytes read from and written to device memory; NaN where a counter is missing."""
    for prefix in ("tcc_ea0", "tcc_ea"):
        names = ("rdreq_sum", "rdreq_32b_sum", "wrreq_sum", "wrreq_64b_sum")
        reads, small, writes, large = (counters.get(f"{prefix}_{name}", math.nan) for name in names)
        if math.isfinite(reads + small + writes + large):
            whole_lines = counters.get("tcc_bubble_sum", 0.0 if prefix == "tcc_ea" else math.nan)
            read = 128 * whole_lines + 64 * (reads - whole_lines - small) + 32 * small
            return read if read >= 0 else math.nan, 64 * large + 32 * (writes - large)
    return math.nan, math.nan
