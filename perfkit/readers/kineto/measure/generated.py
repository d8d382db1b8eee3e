"""The work of calls in generated code that the trace does not show: what the compiler recorded of each call.

Two graphs may call different kernels by one name; then the call decides which it is. What a CUDA graph replays has no
operator around it: the call that its code has there takes the place of the operator, and where a run of the code was
not found a generated kernel's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.cost import Cost
from perfkit.numbers import numbered
from perfkit.readers.kineto.attribution.call_sites import Located
from perfkit.readers.kineto.decode.events import DeviceEvents, HostEvents
from perfkit.readers.kineto.measure.calls import KindOfCall
from perfkit.readers.kineto.measure.captured import ReplayedActivities
from perfkit.readers.kineto.measure.rows import HostRows, is_generated
from perfkit.run_folder import DeclaredKernel
from perfkit.tree.shares import Work


def complete(host: HostEvents, rows: HostRows, located: Located, declared: Mapping[str, DeclaredKernel]) -> None:
    """Give generated kernels the work of their call where their names alone do not show it, in place."""
    unknown = host.named([is_generated(name) and name not in declared for name in host.names]) & (rows.kind >= 0)
    known: dict[tuple[int, int], int] = {}
    for event in np.flatnonzero(unknown & (located.of_event >= 0)).tolist():
        site, before = int(located.of_event[event]), int(rows.kind[event])
        work = located.work[site]
        if work is None or located.sites[site].name != host.names[host.name[event]]:
            continue
        if (site, before) not in known:
            known[site, before] = len(rows.kinds)
            rows.kinds.append(_kind(work, rows.kinds[before].shapes))
        rows.kind[event] = known[site, before]


def with_replays(
    rows: HostRows,
    device: DeviceEvents,
    replayed: Booleans,
    located: Located | None,
    declared: Mapping[str, DeclaredKernel],
    captured: ReplayedActivities | None = None,
) -> tuple[HostRows, Integers]:
    """The `rows` with one more for each call in a replay whose work is known; and the row that does the work of each
    activity of a replay, −1 for none."""
    owner = np.full(len(device), -1, np.int64)
    kinds, added = list(rows.kinds), [rows.kind]

    def add(which: Booleans, call: Integers, works: list[KindOfCall], work: Integers) -> None:
        """Add a row for each of the calls that `which` activities are of: call `i` does `works[work[i]]`."""
        owner[which] = sum(map(len, added)) + call
        added.append(len(kinds) + work)
        kinds.extend(works)

    replays = located.replays if located is not None else None
    if located is not None and replays is not None:
        known = np.array([*(work is not None for work in located.work), False], dtype=bool)
        which = replayed & known[replays.site]
        calls, call = numbered(replays.run[which] * len(located.sites) + replays.site[which])
        sites, site = numbered(calls % len(located.sites))
        add(which, call, [_kind(w) for s in sites.tolist() if (w := located.work[s]) is not None], site)
    if captured is not None:
        for which, call, works, work in captured.calls():
            before = owner.copy()
            add(which, call, works, work)
            owner = np.where(before >= 0, before, owner)
    is_declared = np.array([name in declared for name in device.names], dtype=bool)
    which = replayed & (owner < 0) & is_declared[device.name]
    names, name = numbered(device.name[which])
    add(which, np.arange(len(name)), [_kind(_declared(declared[device.names[code]])) for code in names.tolist()], name)
    return replace(rows, kinds=kinds, kind=np.concatenate(added)), owner


def _kind(work: Work, shapes: str | None = None) -> KindOfCall:
    return KindOfCall(shapes, Cost(work.flop, work.bytes_read, work.bytes_written), work.parts)


def _declared(kernel: DeclaredKernel) -> Work:
    return Work(kernel.flop, kernel.bytes_read, kernel.bytes_written)
