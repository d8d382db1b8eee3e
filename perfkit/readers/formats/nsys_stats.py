"""Lists of GPU activity that `nsys stats` prints as CSV."""

from __future__ import annotations

from pathlib import Path

from perfkit.readers.formats import Format
from perfkit.readers.sniff import Head
from perfkit.table import KernelTable

_BEGINNING = 1 << 14


def knows(head: Head) -> bool:
    """Accept the CSV of `cuda_gpu_trace`."""
    text = head.text[:_BEGINNING]
    if head.packing or b"GrdX" not in text:
        return False
    from perfkit.readers.gpu_lists.nsys_stats import is_header

    return any(is_header(line) for line in text.decode("utf-8", "replace").splitlines())


def read(path: Path) -> KernelTable:
    """Read the list of kernels and copies."""
    from perfkit.readers.gpu_lists.nsys_stats import read_gpu_trace

    return read_gpu_trace(path)


FORMAT = Format("GPU traces of `nsys stats` (cuda_gpu_trace, CSV)", knows, read, endings=(".csv",))
