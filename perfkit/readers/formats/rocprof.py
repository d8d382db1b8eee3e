"""Files of AMD's rocprofv3: lists of kernels and copies (CSV), its JSON and its database."""

from __future__ import annotations

from pathlib import Path

from perfkit.readers.formats import Format
from perfkit.readers.sniff import Head, head_of
from perfkit.table import KernelTable

_BEGINNING = 1 << 14

_MARK = b'"rocprofiler-sdk-tool"'  # in its JSON


def knows(head: Head) -> bool:
    """Accept rocprofv3's CSV, JSON or database."""
    if head.raw.startswith(b"SQLite format 3"):
        return b"rocpd_kernel_dispatch" in head.raw
    if head.is_json:
        return head.packing in ("", "gzip") and _MARK in head.text[:4096]
    text = head.text[:_BEGINNING]
    if head.packing or b"_Timestamp" not in text:
        return False
    from perfkit.readers.gpu_lists.rocprof import is_header

    return any(map(is_header, text.decode("utf-8", "replace").split("\n")))


def read(path: Path) -> KernelTable:
    """Read the kernels and copies."""
    from perfkit.readers.gpu_lists import rocpd, rocprof

    if head_of(path).raw.startswith(b"SQLite"):
        return rocpd.read_database(path)
    return rocprof.read_json(path) if head_of(path).is_json else rocprof.read_csv(path)


FORMAT = Format("kernel traces of rocprofv3 (CSV, JSON, rocpd)", knows, read, endings=(".csv", ".json", ".db"))
