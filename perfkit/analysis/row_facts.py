"""What perfkit knows of each row of a kernel table, as named facts: its place, launch, work, roof, and their origins.

Only what is known is there, so that nothing absent reads as zero. What torch.profiler also writes has its name for it
(grid, block, `registers per thread`, …), so that tools that read its traces find it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.analysis.roofline import BOUNDS, Judged, Reals
from perfkit.table import MEASURE_GROUPS

if TYPE_CHECKING:
    import pandas as pd

_TEXT = {
    "pass": "pass", "module": "module", "operator": "operator", "range": "range", "placed by": "placed_by",
    "short name": "short_name", "family": "family", "shapes": "shapes",
}  # fmt: skip
_WHOLE = {"order": "order", "step": "step", "layer": "layer", "registers per thread": "registers"}
_REAL = {
    "shared memory": ("shared_bytes", 1), "est. achieved occupancy %": ("occupancy", 100), "waves": ("waves", 1),
    "DRAM bytes": ("dram_bytes", 1),
    "DRAM bytes read": ("dram_read_bytes", 1), "DRAM bytes written": ("dram_write_bytes", 1),
    "L2 bytes read": ("l2_read_bytes", 1), "L2 bytes written": ("l2_write_bytes", 1), "L1 bytes": ("l1_bytes", 1),
    "tensor pipe %": ("tensor_active", 100), "instructions": ("instructions", 1),
}  # fmt: skip


def of_rows(frame: pd.DataFrame, judged: Judged) -> Iterator[dict[str, Any]]:
    """The facts of each row of `frame`, whose rows `judged` describes in the same order."""
    columns: dict[str, list[Any]] = {}
    for name, column in _TEXT.items():
        columns[name] = _known(frame[column], str)
    for name, column in _WHOLE.items():
        columns[name] = _known(frame[column], int)
    columns["device"] = _known(frame["device"], _device)
    columns["stream"] = _known(frame["stream"].where((frame["device"] != "cpu").fillna(True)), int)
    for name in ("grid", "block"):
        columns[name] = _sizes(frame, name)
    columns.update(_work(judged))
    for name, (column, factor) in _REAL.items():
        columns[name] = _numbers(frame[column].to_numpy(float) * factor)
    columns["origin"] = _origins(frame)
    columns = {name: values for name, values in columns.items() if any(v is not None for v in values)}
    names = tuple(columns)
    for values in zip(*columns.values(), strict=True) if columns else ({} for _ in range(len(frame))):
        yield {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _known(column: pd.Series, make: Callable[[Any], Any]) -> list[Any]:
    known = column.notna().tolist()
    return [make(v) if k else None for v, k in zip(column.astype(object).tolist(), known, strict=True)]


def _numbers(values: Reals) -> list[float | None]:
    return [v if math.isfinite(v) else None for v in values.tolist()]


def _device(name: str) -> int | str:
    """The number of a GPU as torch.profiler gives it; the name of anything else."""
    number = str(name).rpartition(":")[2]
    return int(number) if number.isdigit() else str(name)


def _sizes(frame: pd.DataFrame, what: str) -> list[list[int] | None]:
    axes = [_known(frame[f"{what}_{axis}"], int) for axis in "xyz"]
    return [None if None in sizes else list(sizes) for sizes in zip(*axes, strict=True)]


def _work(j: Judged) -> dict[str, list[Any]]:
    """FLOP, bytes, rates, and where the row stands against its roof."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rates = {
            "FLOP": j.flop,
            "bytes": j.bytes,
            "FLOP/byte": np.where(j.bytes > 0, j.flop / j.bytes, np.nan),
            "FLOP/s": np.where(j.time > 0, j.flop / j.time * 1e9, np.nan),
            "bytes/s": np.where(j.time > 0, j.bytes / j.time * 1e9, np.nan),
            "% of roof": np.where(j.judged & (j.time > 0), np.round(j.roof / j.time * 100, 1), np.nan),
            "roof ns": np.where(j.judged, j.roof, np.nan),
            "headroom ns": j.headroom,
        }
    return {
        **{name: _numbers(values) for name, values in rates.items()},
        "bound by": [BOUNDS[b] if b >= 0 else None for b in j.bound.tolist()],
        "ceiling": [j.ceilings[c] if c >= 0 else None for c in j.ceiling.tolist()],
        "above its roof": [True if above else None for above in j.above.tolist()],
        "bytes are": [
            ("to and from DRAM" if counted else "minimal, each tensor once") if known else None
            for counted, known in zip(j.counters.tolist(), np.isfinite(j.bytes).tolist(), strict=True)
        ],
    }


def _origins(frame: pd.DataFrame) -> list[dict[str, str]]:
    """Group of measures → origin, of the groups that are known; rows with the same origins share one dict."""
    columns = [frame[f"{group}_origin"].astype(object).tolist() for group in MEASURE_GROUPS]
    made: dict[tuple[str, ...], dict[str, str]] = {}
    return [
        made.setdefault(row, {g: o for g, o in zip(MEASURE_GROUPS, row, strict=True) if o != "absent"})
        for row in zip(*columns, strict=True)
    ]
