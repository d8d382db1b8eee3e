"""The kind of profile that a kernel table comes from, and the words of its report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfkit.run_folder import KERNELS
from perfkit.table import KernelTable

RUN, NCU, NSYS, TRACE, TABLE = "run", "ncu", "nsys", "trace", "table"
_KINDS = {"ncu-report": NCU, "ncu-csv": NCU, "nsys": NSYS, "kineto": TRACE}
_TITLES = {
    NCU: "Nsight Compute report",
    NSYS: "Nsight Systems capture",
    TRACE: "torch.profiler trace",
    TABLE: "Kernel table",
}
# Endings of profiles, the longest first, so that a dot inside a name stays in it.
_ENDINGS = (
    ".perfkit.pt.trace.json.gz", ".pt.trace.json.gz", ".pt.trace.json", ".trace.json.gz", ".trace.json", ".json.gz",
    ".json", ".ncu-rep", ".nsys-rep", ".sqlite", ".details.csv", ".raw.csv", ".csv", ".parquet",
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """`kind` (run, ncu, nsys, trace, table), the file's name without its ending, a title, and what amounts are of."""

    kind: str
    name: str
    title: str
    per: str  # step, capture (the whole of a trace without steps) or profile (kernels measured one by one)


def of(table: KernelTable, path: str | Path) -> Source:
    """The source of a table that belongs to no run."""
    file = Path(path)
    kind = _KINDS.get(table.source.get("reader", ""), TABLE)
    name = file.parent.name if file.name == KERNELS else stem(file.name)
    if file.name == KERNELS:
        kind = TABLE
    gpus = table.facts.get("gpus") or []
    device = f", {gpus[0]['name']}" if gpus and gpus[0].get("name") else ""
    marked = table.facts.get("marked", bool(table.rows["step"].notna().any()))
    per = "profile" if kind == NCU else "step" if marked else "capture"
    return Source(kind, name or "profile", f"{_TITLES[kind]} {name or file.name}{device}", per)


def stem(name: str) -> str:
    """A file's name without the ending of its format: `gh200-full-2025.1.ncu-rep` → `gh200-full-2025.1`."""
    ending = next((e for e in _ENDINGS if name.lower().endswith(e) and len(name) > len(e)), "")
    return name.removesuffix(name[len(name) - len(ending) :]) if ending else name
