"""Nsight Compute: reports, and what `ncu --csv` prints."""

from __future__ import annotations

from pathlib import Path

from perfkit.readers.formats import Format
from perfkit.readers.sniff import Head, head_of
from perfkit.table import KernelTable

_REPORT = b"NVR\0"


def knows(head: Head) -> bool:
    """Accept a report, or a page that `ncu --csv` prints."""
    if _is_report(head):
        return True
    from perfkit.readers.ncu import is_csv

    return not head.packing and is_csv(head.text)


def _is_report(head: Head) -> bool:
    return head.text.startswith(_REPORT) and head.packing in ("", "zstd")


def read(path: Path) -> KernelTable:
    """Read a report or a page."""
    from perfkit.readers import ncu

    return ncu.read_report(path) if _is_report(head_of(path)) else ncu.read_csv(path)


FORMAT = Format("reports and CSV of Nsight Compute", knows, read)
