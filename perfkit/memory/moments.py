"""Memory at a moment, and over time: sums of allocations by kind and by owner."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from perfkit.memory.kinds import KINDS, Kinds
from perfkit.memory.lifetimes import Allocations, allocated_over_time
from perfkit.memory.results import MemoryCourse, MemoryKind, Moment, Owner

POINTS = 1000  # of a course: more than a chart has pixels
Who = Callable[[int], tuple[str, str, int, str]]  # name, file, line and function of the owner of an allocation


def moment(found: Allocations, kinds: Kinds, alive: Any, who: Who) -> Moment:
    """Return the memory of the allocations in `alive`, a mask of `found`."""
    indices = alive.nonzero()[0]
    sizes, kind, known = found.size[indices], kinds.kind[indices], kinds.known[indices]
    parts = [
        MemoryKind(
            kind=name,
            bytes=int(sizes[kind == number].sum()),
            count=int((kind == number).sum()),
            known_bytes=int(sizes[(kind == number) & known].sum()),
        )
        for number, name in enumerate(KINDS)
        if (kind == number).any()
    ]
    return Moment(
        allocated=int(sizes.sum()),
        requested=int(found.requested[indices].sum()),
        parts=sorted(parts, key=lambda part: -part.bytes),
        owners=_owners(found, kinds, indices, who),
    )


def _owners(found: Allocations, kinds: Kinds, indices: Any, who: Who) -> list[Owner]:
    """The owners of some allocations, the largest first."""
    owners: dict[tuple[Any, ...], Owner] = {}
    for index in indices.tolist():
        name, file, line, function = who(index)
        kind, known = KINDS[kinds.kind[index]], bool(kinds.known[index])
        owner = owners.setdefault(
            (kind, name, file, line, function, known),
            Owner(kind=kind, name=name, file=file, line=line, function=function, known=known),
        )
        owner.bytes += int(found.size[index])
        owner.count += 1
    return sorted(owners.values(), key=lambda owner: -owner.bytes)


def course(found: Allocations, kinds: Kinds, count: int, time_ns: Any, reserved: Any) -> MemoryCourse:
    """Bytes by kind over the events, at most `POINTS` of them: the highest of each of as many stretches."""
    kept = peaks(allocated_over_time(found, count))
    at = np.maximum(kept - 1, 0)
    timed = len(time_ns) == count and count > 0
    made = MemoryCourse(timed=timed, at=(time_ns[at] / 1e6).tolist() if timed else kept.tolist())
    for number, name in enumerate(KINDS):
        mine = kinds.kind == number
        if mine.any():
            made.kinds[name] = allocated_over_time(found, count, mine)[kept].tolist()
    made.reserved = [] if reserved is None else reserved[kept].tolist()
    return made


def peaks(values: Any) -> Any:
    """The indices of at most `POINTS` values, the highest of each stretch among them, and the first and the last."""
    if len(values) <= POINTS:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), POINTS - 1).astype(int)
    highest = [first + int(values[first:end].argmax()) for first, end in pairwise(edges)]
    return np.unique([0, *highest, len(values) - 1])
