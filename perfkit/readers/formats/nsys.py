"""Nsight Systems: exports, and reports where nsys can export them."""

from __future__ import annotations

from pathlib import Path

from perfkit.readers.formats import Format
from perfkit.readers.sniff import Head, head_of
from perfkit.table import KernelTable

_SQLITE, _REPORT = b"SQLite format 3\0", b"NVIDIA Tegra Profiler Report"


def knows(head: Head) -> bool:
    """Accept an export or a report."""
    return head.raw.startswith((_SQLITE, _REPORT)) and b"rocpd_kernel_dispatch" not in head.raw


def is_export(head: Head) -> bool:
    """Return whether the file is an sqlite export."""
    return head.raw.startswith(_SQLITE)


def read(path: Path) -> KernelTable:
    """Read an export, or export a report first."""
    if is_export(head_of(path)):
        from perfkit.readers.nsys.capture import read_export

        return read_export(path)
    from perfkit.readers.nsys.export import read_report

    return read_report(path)


FORMAT = Format(
    "sqlite exports of Nsight Systems",
    knows,
    read,
    endings=(".nsys-rep", ".sqlite"),
    title="Nsight Systems capture",
)
