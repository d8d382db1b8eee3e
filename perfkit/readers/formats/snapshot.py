"""Memory snapshots of PyTorch: allocations without kernels, which `perfkit report` has a page of its own for."""

from __future__ import annotations

import re
from pathlib import Path

from perfkit.errors import InputError
from perfkit.readers.formats import MEMORY, Format
from perfkit.readers.sniff import Head
from perfkit.table import KernelTable

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_KEYS = (b"segments", b"device_traces", b"segment_type")
_EARLY = 4096  # a snapshot begins with one of its keys


def knows(head: Head) -> bool:
    """Accept a pickled memory snapshot."""
    early = head.text[:_EARLY]
    return not head.packing and _PICKLE.match(early) is not None and any(key in early for key in _KEYS)


def read(path: Path) -> KernelTable:
    """Refuse it as a kernel table: `perfkit report` has a page for it."""
    raise InputError(
        f"{path} is a memory snapshot of PyTorch: it holds allocations and no kernels.",
        "`perfkit report` of it says who holds the memory.",
    )


FORMAT = Format("memory snapshots of PyTorch", knows, read, holds=MEMORY, endings=(".pickle", ".pkl"))
