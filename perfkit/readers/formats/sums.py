"""Sums of kernels by name, as `nsys stats` and rocprofv3 print them."""

from __future__ import annotations

from pathlib import Path

from perfkit.readers.formats import Format
from perfkit.readers.sniff import Head
from perfkit.table import KernelTable

_BEGINNING = 1 << 14


def knows(head: Head) -> bool:
    """Accept the CSV of `cuda_gpu_kern_sum` and its like, and `kernel_stats.csv`."""
    text = head.text[:_BEGINNING]
    if head.packing or not (b"Total Time" in text or b"TotalDurationNs" in text):
        return False
    from perfkit.readers.gpu_lists.nsys_sums import is_header

    return any(map(is_header, text.decode("utf-8", "replace").splitlines()))


def read(path: Path) -> KernelTable:
    """Read the sums."""
    from perfkit.readers.gpu_lists.nsys_sums import read_sums

    return read_sums(path)


FORMAT = Format("sums of kernels of `nsys stats` and rocprofv3 (CSV)", knows, read, endings=(".csv",))
