"""Kernel groups, and whole kernel tables, as CSV or parquet for a spreadsheet or a script; base units throughout."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.analysis.results import Group, Report
from perfkit.errors import UsageError
from perfkit.run_folder import written_whole

if TYPE_CHECKING:
    from perfkit.table import KernelTable

# Column → the group's field; the unit is in the name. Absent values are empty.
COLUMNS = {
    "kernel": "key", "shapes": "shapes", "family": "family", "passes": "passes", "count": "count", "time_ns": "time_ns",
    "share": "share", "flop": "flop", "bytes": "bytes", "flop_per_byte": "intensity", "flop_per_s": "flop_rate",
    "bytes_per_s": "bandwidth", "roof_ns": "roof_ns", "efficiency": "efficiency", "headroom_ns": "headroom_ns",
    "bound": "bound", "ceiling": "ceiling", "above_roof": "above_roof", "above_ns": "above_ns",
    "helped_by_l2_ns": "helped_ns",
    "withheld_ns": "withheld_ns", "withheld": "withheld", "why": "reasons",
}  # fmt: skip


def render(report: Report) -> str:
    """One row a kernel group, of every backend, largest time first."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["backend", *COLUMNS])
    for backend in report.backends:
        writer.writerows([_cell(backend.name), *_row(group)] for group in backend.kernels)
    return out.getvalue()


def write_table(table: KernelTable, path: Path) -> None:
    """Write every row and column of a kernel table to `path`; its ending chooses the format, .csv or .parquet.

    Raises `UsageError` for another ending and `RunFailed` when the file cannot be written.
    """
    if path.suffix not in (".parquet", ".csv"):
        raise UsageError(f"{path.name} is neither .csv nor .parquet.", "Name the export with one of the two.")
    with written_whole(path, "Free space or choose another.") as temporary:
        if path.suffix == ".parquet":
            table.write(temporary)
        else:
            _guarded(table.frame).to_csv(temporary, index=False)


def _row(group: Group) -> list[Any]:
    return [_cell(getattr(group, field)) for field in COLUMNS.values()]


def _cell(value: Any) -> Any:
    """A spreadsheet runs text that starts like a formula: such text gets an apostrophe before it."""
    if isinstance(value, list):
        value = "; ".join(reason.label for reason in value)
    if isinstance(value, tuple):
        value = "+".join(value)
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value


def _guarded(frame: Any) -> Any:
    texts = frame.select_dtypes(["string", "category"]).columns
    return frame.assign(**{name: frame[name].astype(object).map(_cell, na_action="ignore") for name in texts})
