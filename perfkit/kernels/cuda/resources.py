"""Registers and memory that a kernel takes, read from the assembler's log (`--ptxas-options=-v`)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Resources:
    """A thread's registers, bytes of local memory (the stack frame) and of spills; a block's static shared bytes."""

    registers: int
    local: int
    spill_stores: int
    spill_loads: int
    shared: int


def read_resources(log: str) -> dict[str, Resources]:
    """Resources by symbol, from a log that may cover several kernels. A kernel without figures is left out."""
    found = {}
    entries = list(_ENTRY.finditer(log))
    starts = [entry.start() for entry in entries]
    for entry, following in zip(entries, [*starts[1:], len(log)], strict=False):  # an empty log has none
        text = log[entry.end() : following]
        frame, used, shared = _FRAME.search(text), _USED.search(text), _SHARED.search(text)
        if frame and used:
            local, stores, loads = map(int, frame.groups())
            found[entry["name"]] = Resources(int(used[1]), local, stores, loads, int(shared[1]) if shared else 0)
    return found
