"""The kind of profile that a kernel table comes from, and the words of its report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfkit.run_folder import KERNELS
from perfkit.table import KernelTable

RUN, NCU, NSYS, TRACE, TABLE = "run", "ncu", "nsys", "trace", "table"
_KINDS = {"ncu-report": NCU, "ncu-csv": NCU, "nsys": NSYS, "kineto": TRACE}
_TITLE = "Kernel table"
PROFILE = "profile"  # what amounts are of where kernels were measured one by one


@dataclass(frozen=True)
class Source:
    """`kind` (run, ncu, nsys, trace, table), the file's name without its ending, a title, and what amounts are of."""

    kind: str
    name: str
    title: str
    per: str  # step, capture (the whole of a trace without steps) or profile (kernels measured one by one)


def of(table: KernelTable, path: str | Path) -> Source:
    """The source of a table that belongs to no run; the format that it was read by left its name, title and unit."""
    file = Path(path)
    kind = _KINDS.get(table.source.get("reader", ""), TABLE)
    name, title = table.source.get("name", file.stem), table.source.get("title", _TITLE)
    if file.name == KERNELS:
        kind, name, title = TABLE, file.parent.name, _TITLE
    gpus = table.facts.get("gpus") or []
    device = f", {gpus[0]['name']}" if gpus and gpus[0].get("name") else ""
    marked = table.facts.get("marked", bool(table.rows["step"].notna().any()))
    alone = kind == NCU or table.source.get("unit") == PROFILE
    per = PROFILE if alone else "step" if marked else "capture"
    return Source(kind, name or "profile", f"{title} {name or file.name}{device}", per)
