"""Profiles of Triton's Proton."""

from __future__ import annotations

from pathlib import Path

from perfkit.readers.formats import Format
from perfkit.readers.sniff import Head
from perfkit.table import KernelTable

_KEYS = {"frame", "metrics", "children"}


def knows(head: Head) -> bool:
    """Accept a list of a tree of frames with metrics."""
    return head.is_json and head.packing in ("", "gzip") and head.plain[:1] == b"[" and head.keys[1] >= _KEYS


def read(path: Path) -> KernelTable:
    """Read the sums of kernels."""
    from perfkit.readers.gpu_lists.proton import read_proton

    return read_proton(path)


FORMAT = Format("profiles of Triton's Proton (`.hatchet`)", knows, read, endings=(".hatchet",))
