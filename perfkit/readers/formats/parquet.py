"""Kernel tables as perfkit writes them."""

from __future__ import annotations

from pathlib import Path

from perfkit.readers.formats import Format
from perfkit.table import KernelTable


def knows(path: Path, head: bytes) -> bool:
    return head.startswith(b"PAR1")


def read(path: Path) -> KernelTable:
    return KernelTable.load(path)


FORMAT = Format("kernels.parquet", knows, read)
