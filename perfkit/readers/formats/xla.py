"""Profiles of XLA: JAX's `*.xplane.pb` and `*.trace.json.gz`."""

from __future__ import annotations

import re
from pathlib import Path

from perfkit.readers.formats import Format
from perfkit.readers.sniff import Head
from perfkit.table import KernelTable

_PLANE = re.compile(rb"/(?:host|device):(?:CPU|GPU|TPU|CUSTOM|metadata)")
_MARKS = (b'"hlo_module"', b'"hlo_op"', b'"highres-ticks"', b'"/device:', b'"/host:CPU"')


def knows(head: Head) -> bool:
    """Accept an XSpace (protobuf), or the Chrome trace that XLA's profiler writes next to it."""
    if head.is_json:
        return head.packing in ("", "gzip") and any(mark in head.text for mark in _MARKS) and not head.is_of_torch
    return head.packing in ("", "gzip") and head.text[:1] == b"\n" and _PLANE.search(head.text[:4096]) is not None


def read(path: Path) -> KernelTable:
    """Read the kernels, or the operations on the CPU."""
    from perfkit.readers.xla.read import read as read_profile

    return read_profile(path)


FORMAT = Format(
    "profiles of JAX and XLA (`.xplane.pb`, `.trace.json.gz`)",
    knows,
    read,
    endings=(".xplane.pb", ".trace.json.gz"),
)
