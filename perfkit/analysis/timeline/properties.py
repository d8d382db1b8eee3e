"""Named facts of each row of a kernel table: its place, launch, work, roof, and their origins.

Only what is known is there, so that nothing absent reads as zero. What torch.profiler also writes has its name for it
(grid, block, `registers per thread`, …), so that tools that read its traces find it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.analysis.roofline.roof import BOUNDS, Judged, Reals
from perfkit.table import MEASURE_GROUPS

if TYPE_CHECKING:
    import pandas as pd

_TEXT = {
    "pass": "pass", "module": "module", "operator": "operator", "line": "line", "range": "range",
    "placed by": "placed_by", "short name": "short_name", "family": "family", "shapes": "shapes",
    "collective": "collective", "group": "group", "algorithm": "algorithm", "protocol": "protocol",
}  # fmt: skip
Column = list[Any] | Reals
_WHOLE = {"order": "order", "step": "step", "layer": "layer", "registers per thread": "registers"}
_COUNTED = {*_WHOLE, "stream"}
_REAL = {
    "shared memory": ("shared_bytes", 1), "est. achieved occupancy %": ("occupancy", 100), "waves": ("waves", 1),
    "DRAM bytes": ("dram_bytes", 1),
    "DRAM bytes read": ("dram_read_bytes", 1), "DRAM bytes written": ("dram_write_bytes", 1),
    "L2 bytes read": ("l2_read_bytes", 1), "L2 bytes written": ("l2_write_bytes", 1), "L1 bytes": ("l1_bytes", 1),
    "tensor pipe %": ("tensor_active", 100), "instructions": ("instructions", 1),
    "message bytes": ("message_bytes", 1), "waiting ns": ("wait_ns", 1),
}  # fmt: skip


def of_columns(frame: pd.DataFrame, judged: Judged) -> dict[str, Column]:
    """The facts of all rows of `frame`, whose rows `judged` describes in the same order, as columns by name.

    A number is a float, NaN where it is unknown; anything else is in a list, None where it is unknown. Facts that
    no row has are left out.
    """
    columns: dict[str, Column] = {}
    for name, column in _TEXT.items():
        columns[name] = _known(frame[column], str)
    for name, column in _WHOLE.items():
        columns[name] = _numbers(frame[column])
    columns["device"] = _known(frame["device"], _device)
    columns["stream"] = np.where((frame["device"] == "cpu").fillna(False), np.nan, _numbers(frame["stream"]))
    for name in ("grid", "block"):
        columns[name] = _sizes(frame, name)
    columns.update(_work(judged))
    for name, (column, factor) in _REAL.items():
        columns[name] = _numbers(frame[column]) * factor
    columns["origin"] = _origins(frame)
    return {name: values for name, values in columns.items() if _any(values)}


def of_rows(frame: pd.DataFrame, judged: Judged) -> Iterator[dict[str, Any]]:
    """The facts of each row, only what is known of it; arguments as for `of_columns`."""
    columns = {name: _listed(name, values) for name, values in of_columns(frame, judged).items()}
    names = tuple(columns)
    for values in zip(*columns.values(), strict=True) if columns else ({} for _ in range(len(frame))):
        yield {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _listed(name: str, values: Column) -> list[Any]:
    """Numbers as Python's, what is unknown as None."""
    if isinstance(values, list):
        return values
    make: Callable[[float], Any] = int if name in _COUNTED else float
    return [make(v) if math.isfinite(v) else None for v in values.tolist()]


def _any(values: Column) -> bool:
    return any(v is not None for v in values) if isinstance(values, list) else bool(np.isfinite(values).any())


def _known(column: pd.Series, make: Callable[[Any], Any]) -> list[Any]:
    """Each value as `make` gives it, None for None; values that occur again are made once."""
    codes, values = column.factorize()
    made = [*map(make, values), None]  # −1, the code of nothing, is the last
    return [made[code] for code in codes.tolist()]


def _numbers(column: pd.Series) -> Reals:
    values: Reals = column.to_numpy(float, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def _device(name: str) -> int | str:
    """The number of a GPU as torch.profiler gives it; the name of anything else."""
    number = str(name).rpartition(":")[2]
    return int(number) if number.isdigit() else str(name)


def _sizes(frame: pd.DataFrame, what: str) -> list[list[int] | None]:
    """[x, y, z] of each row; rows of the same sizes share one list."""
    rows = list(zip(*(_numbers(frame[f"{what}_{axis}"]).tolist() for axis in "xyz"), strict=True))
    made = {sizes: [int(n) for n in sizes] if all(map(math.isfinite, sizes)) else None for sizes in set(rows)}
    return [made[sizes] for sizes in rows]


def _work(j: Judged) -> dict[str, Column]:
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
        **{name: np.where(np.isfinite(values), values, np.nan) for name, values in rates.items()},
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
    rows = list(zip(*columns, strict=True))
    made = {row: {g: o for g, o in zip(MEASURE_GROUPS, row, strict=True) if o != "absent"} for row in set(rows)}
    return [made[row] for row in rows]
