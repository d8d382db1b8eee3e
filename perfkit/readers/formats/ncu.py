"""Nsight Compute: reports, and what `ncu --csv` prints."""

from __future__ import annotations

from pathlib import Path

from perfkit.readers.formats import Format
from perfkit.table import KernelTable

_REPORT = b"NVR\0"


def knows(path: Path, head: bytes) -> bool:
    if head.startswith(_REPORT):
        return True
    from perfkit.readers.ncu import is_csv

    return is_csv(path)


def read(path: Path) -> KernelTable:
    from perfkit.readers import ncu

    with path.open("rb") as file:
        is_report = file.read(len(_REPORT)) == _REPORT
    return ncu.read_report(path) if is_report else ncu.read_csv(path)


FORMAT = Format("reports and CSV of Nsight Compute", knows, read)
