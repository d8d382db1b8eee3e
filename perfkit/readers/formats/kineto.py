"""Traces of torch.profiler."""

from __future__ import annotations

from pathlib import Path

from perfkit.readers.formats import Format
from perfkit.readers.sniff import Head
from perfkit.table import KernelTable


def knows(head: Head) -> bool:
    """Accept JSON with the marks of torch.profiler."""
    return head.packing in ("", "gzip") and head.is_json and head.is_of_torch


def may_be(head: Head) -> bool:
    """Accept any JSON, plain or gzip, and gzip that cannot be unpacked."""
    damaged = head.packing == "gzip" and not head.text
    return damaged or (head.packing in ("", "gzip") and head.is_json)


def read(path: Path) -> KernelTable:
    """Read the steps of a trace."""
    from perfkit.readers.kineto.trace import read_trace

    return read_trace(path)


def read_whole(path: Path) -> KernelTable:
    """Read a trace as one step."""
    from perfkit.readers.kineto.trace import read_trace

    return read_trace(path, whole=True)


FORMAT = Format(
    "torch.profiler traces (JSON, plain or gzip)", knows, read, may_be=may_be, read_whole=read_whole,
    endings=(
        ".perfkit.pt.trace.json.gz", ".pt.trace.json.gz", ".pt.trace.json", ".trace.json.gz", ".trace.json", ".json.gz",
        ".json",
    ),
    title="torch.profiler trace",
)  # fmt: skip
