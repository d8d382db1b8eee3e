"""Kernel tables as perfkit writes them."""

from __future__ import annotations

from pathlib import Path

from perfkit.readers.formats import Format
from perfkit.readers.sniff import Head
from perfkit.table import KernelTable


def knows(head: Head) -> bool:
    """Accept a parquet file."""
    return head.raw.startswith(b"PAR1")


def read(path: Path) -> KernelTable:
    """Read a kernel table."""
    return KernelTable.load(path)


FORMAT = Format("kernels.parquet", knows, read, endings=(".parquet",))
