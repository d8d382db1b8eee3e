"""Nsight Compute: reports, and the pages that `ncu` prints."""

from __future__ import annotations

from pathlib import Path

from perfkit.readers.formats import PROFILE, Format
from perfkit.readers.sniff import Head, head_of
from perfkit.table import KernelTable

_REPORT = b"NVR\0"


def knows(head: Head) -> bool:
    """Accept a report, or a page that `ncu` prints."""
    if _is_report(head):
        return True
    from perfkit.readers.ncu import is_page

    return not head.packing and is_page(head.text)


def _is_report(head: Head) -> bool:
    return head.text.startswith(_REPORT) and head.packing in ("", "zstd")


def read(path: Path) -> KernelTable:
    """Read a report or a page."""
    from perfkit.readers import ncu

    return ncu.read_report(path) if _is_report(head_of(path)) else ncu.read_page(path)


FORMAT = Format(
    "reports and printed pages of Nsight Compute",
    knows,
    read,
    endings=(".ncu-rep", ".ncu-repz", ".details.csv", ".raw.csv"),
    title="Nsight Compute report",
    unit=PROFILE,
)
