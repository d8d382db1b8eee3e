"""Counters of AMD's rocprof-compute (Omniperf)."""

from __future__ import annotations

from pathlib import Path

from perfkit.readers.formats import Format
from perfkit.readers.sniff import Head
from perfkit.table import KernelTable

_WIDEST = 1 << 17  # characters of a header: each channel of L2 has counters of its own


def knows(head: Head) -> bool:
    """Accept `pmc_perf.csv`."""
    text = head.text[:_WIDEST]
    if head.packing or not (b"SQ_" in text or b"GRBM_" in text):
        return False
    from perfkit.readers.gpu_lists.rocprof_compute import is_header

    return is_header(text.decode("utf-8", "replace").removeprefix("\ufeff").split("\n", 1)[0])


def read(path: Path) -> KernelTable:
    """Read the counters of each dispatch."""
    from perfkit.readers.gpu_lists.rocprof_compute import read_counters

    return read_counters(path)


FORMAT = Format("counters of rocprof-compute (pmc_perf.csv)", knows, read, endings=(".csv",))
