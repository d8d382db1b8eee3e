"""Traces of torch.profiler."""

from __future__ import annotations

from pathlib import Path

from perfkit.readers.formats import Format
from perfkit.table import KernelTable


def knows(path: Path, head: bytes) -> bool:
    return head.startswith(b"\x1f\x8b") or head.lstrip()[:1] in (b"{", b"[")


def read(path: Path) -> KernelTable:
    from perfkit.readers.kineto.trace import read_trace

    return read_trace(path)


FORMAT = Format("torch.profiler traces (JSON, plain or gzip)", knows, read, general=True)
