"""Sums by name that `nsys stats` and rocprofv3 print as CSV: `cuda_gpu_kern_sum` and its like, `kernel_stats.csv`.

`cuda_api_sum` next to the sums of kernels adds what the host called, and `cuda_gpu_mem_time_sum` the copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfkit.errors import InputError
from perfkit.readers.gpu_lists import whole
from perfkit.readers.gpu_lists.csv_rows import Row, cells_of, rows_of
from perfkit.readers.gpu_lists.nsys_stats import copy_name, named, time_of
from perfkit.readers.gpu_lists.sums import Sum, path_of, table_of_sums
from perfkit.readers.nsys.activity import COPY, FILL
from perfkit.table import KernelTable

NSYS = "`nsys stats --report cuda_gpu_trace --format csv` lists every launch, and the sqlite export has all."
ROCPROF = "`rocprofv3 --kernel-trace --memory-copy-trace -f csv` lists every launch."
_KERNELS, _CALLS, _COPIES = "cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum"
_COUNTS = ("Instances", "Count", "Num Calls", "Calls")
_OF_HOST = re.compile(r"(?:cuda|cu[A-Z]|hip|hsa_|__hip)\w+$")
_THREE = re.compile(r"\d+")


def is_header(line: str) -> bool:
    """Return whether a line is the header of sums by name."""
    found = {named(cell)[0] for cell in cells_of(line)}
    return _total(found) is not None and bool(found & set(_COUNTS)) and bool(found & {"Name", "Operation"})


def _total(names: set[str]) -> str | None:
    return next((name for name in ("Total Time", "TotalDurationNs") if name in names), None)


def read_sums(path: Path) -> KernelTable:
    """Read the sums at `path`. Raises `InputError` for damaged ones, and for sums of the host's calls alone."""
    sums, calls, by_nsys = list[Sum](), list[dict[str, Any]](), True
    beside = [path_of(path, _KERNELS, other) for other in (_CALLS, _COPIES)]
    for one in [path, *filter(None, beside)]:
        for row, nsys in _rows(one):
            by_nsys = nsys
            _add(sums, calls, row)
    more = NSYS if by_nsys else ROCPROF
    if calls and not sums:
        give = "Give the sums of kernels, `cuda_gpu_kern_sum`." if by_nsys else "Give the sums of kernels."
        raise InputError(f"{path} has sums of calls of the host, and no kernels.", give)
    facts = {"api": sorted(calls, key=lambda call: -call["ns"])[:20]} if calls else {}
    source = {"path": str(path), "reader": "nsys stats" if by_nsys else "rocprofv3"}
    return table_of_sums(sums, source, facts, [], more)


def _rows(path: Path) -> Iterator[tuple[Row, bool]]:
    """The rows by the names of their columns without units, times in ns; and whether nsys wrote them."""
    header, rows = rows_of(path, is_header)
    units = dict(map(named, header))
    total = _total(set(units)) or ""
    unit = units[total] or "ns"
    for row in rows:
        plain = {named(column)[0]: value for column, value in row.items()}
        yield plain | {"total": str(time_of(plain[total], unit))}, total == "Total Time"


def _add(sums: list[Sum], calls: list[dict[str, Any]], row: Row) -> None:
    name = row.get("Name") or row.get("Operation") or ""
    count, total = whole(next((row[c] for c in _COUNTS if c in row), "")), whole(row["total"])
    if count is None or total is None or not name:
        sums.append(Sum(name or "damaged", 0, 0.0))
        return
    if _OF_HOST.fullmatch(name):
        calls.append({"name": name[:200], "count": count, "ns": total})
        return
    copied = copy_name(name)
    if copied:
        sums.append(
            Sum(copied, count, total, FILL if copied.startswith("Memset") else COPY, columns={"device": "cuda"})
        )
        return
    sizes = {
        f"{what}_{axis}": int(size)
        for what, column in (("grid", "GridXYZ"), ("block", "BlockXYZ"))
        for axis, size in zip("xyz", _THREE.findall(row.get(column, "")), strict=False)
        if len(size) < 11
    }
    sums.append(Sum(name.removesuffix(".kd"), count, total, columns={"device": "cuda", **sizes}))
