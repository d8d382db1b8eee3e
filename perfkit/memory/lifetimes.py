"""From the allocator's events to allocations: when each began and ended, how large it was, and who asked for it.

A trace is the last part of a program. A block that it frees and does not allocate was there before; one that it does
not free is among the blocks at the end. A moment is the number of an event; `BEFORE` precedes the first one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfkit.memory.records import ALLOC, FREE, FREED, SEGMENT, SEGMENT_FREE, SnapshotDevice

BEFORE = -1
_LEAST = 512  # bytes of the smallest block, and the step of their sizes


@dataclass
class Allocations:
    """Allocations of one device, a column each, by their beginning.

    `size` is that of the block, in bytes, `requested` what was asked for. An allocation holds its block from the event
    `begin` until before the event `end`; `stack` and `freed_by` are numbers of stacks. `exact`: the block's size is
    known from the blocks at the end; else it is what was asked for, rounded up as the allocator does.
    """

    address: Any
    size: Any
    requested: Any
    begin: Any
    end: Any
    stack: Any
    freed_by: Any
    exact: Any

    def __len__(self) -> int:
        return len(self.address)

    def alive_at(self, moment: int) -> Any:
        """A mask of those that hold their block right after the event `moment`."""
        return (self.begin <= moment) & (self.end > moment)


def allocations(device: SnapshotDevice, exact: bool = False) -> Allocations:
    """The allocations of a device: those of its trace, and the blocks that were there before it began.

    With `exact` the events give the sizes of blocks, and not what was asked for.
    """
    trace = device.trace
    used = np.isin(trace.action, (ALLOC, FREE, FREED)).nonzero()[0]
    order = used[np.lexsort((used, trace.address[used]))]
    action, address = trace.action[order], trace.address[order]
    same = np.append(address[1:] == address[:-1], False)  # the next event is about the same address
    next_action = np.append(action[1:], FREED)
    begun = action == ALLOC
    ends = begun & same & (next_action != ALLOC)
    after = np.append(order[1:], 0)
    count = len(trace)
    # A free whose allocation is not in the trace: what it frees was there before.
    first = np.append(True, ~same[:-1]) if len(order) else np.zeros(0, bool)
    skips = not (action == FREE).any() and (action == FREED).sum() > 1  # as a recording with `skip_actions` may
    earlier = first & (action == (FREED if skips else FREE))
    lost = begun & same & (next_action == ALLOC)  # freed without an event
    begin = np.concatenate([order[begun], np.full(int(earlier.sum()), BEFORE)])
    end = np.concatenate([np.where(ends | lost, after, count)[begun], order[earlier]])
    source = np.concatenate([order[begun], order[earlier]])
    freed = np.concatenate([np.where(ends, after, -1)[begun], order[earlier]])
    frees = np.where(freed >= 0, trace.stack[np.maximum(freed, 0)] if count else 0, 0)
    stack = np.where(begin == BEFORE, 0, trace.stack[source] if count else 0)
    found = Allocations(
        trace.address[source], trace.size[source] if exact else _rounded(trace.size[source]), trace.size[source].copy(),
        begin, end, stack, frees, np.full(len(source), exact),
    )  # fmt: skip
    return _sorted(_with_blocks(found, device, count))


def _rounded(size: Any) -> Any:
    return np.maximum(_LEAST, -(-size // _LEAST) * _LEAST)


def _with_blocks(found: Allocations, device: SnapshotDevice, count: int) -> Allocations:
    """Give what is left at the end the size of its block, and add the blocks that no event allocated."""
    open_ = {int(found.address[i]): i for i in (found.end == count).nonzero()[0]}
    more = []
    for block in device.blocks:
        if not block.allocated:
            continue
        index = open_.pop(block.address, None)
        if index is None:
            more.append(block)
        else:
            found.size[index], found.exact[index] = block.size, True
            found.requested[index] = block.size if block.requested is None else block.requested
    for index in open_.values():  # no block is there: an event is missing, or the snapshot has no segments
        found.end[index] = count if not device.segments else found.begin[index] + 1
    extra = Allocations(
        _integers(b.address for b in more), _integers(b.size for b in more),
        _integers(b.size if b.requested is None else b.requested for b in more),
        np.full(len(more), BEFORE), np.full(len(more), count), _integers(b.stack for b in more),
        np.zeros(len(more), np.int64), np.ones(len(more), bool),
    )  # fmt: skip
    return Allocations(*(np.concatenate(pair) for pair in zip(_columns(found), _columns(extra), strict=True)))


def with_earlier(found: Allocations, address: Any, size: Any, end: Any) -> Allocations:
    """Add allocations of before the first event, which end before the events `end`."""
    none = np.zeros(len(address), np.int64)
    extra = Allocations(address, size, size, none + BEFORE, end, none, none, none == 0)
    return _sorted(Allocations(*(np.concatenate(p) for p in zip(_columns(found), _columns(extra), strict=True))))


def _columns(found: Allocations) -> list[Any]:
    return [found.address, found.size, found.requested, found.begin, found.end, found.stack, found.freed_by,
            found.exact]  # fmt: skip


def _sorted(found: Allocations) -> Allocations:
    order = np.argsort(found.begin, kind="stable")
    return Allocations(*(column[order] for column in _columns(found)))


def _integers(values: Any) -> Any:
    return np.fromiter(values, np.int64)


def allocated_over_time(found: Allocations, count: int, weights: Any = None) -> Any:
    """Bytes held after each event, of those that `weights` leaves over; one entry more at the front for before all."""
    size = found.size if weights is None else found.size * weights
    change = np.zeros(count + 2, np.int64)
    np.add.at(change, found.begin + 1, size)
    np.add.at(change, np.maximum(found.end, found.begin) + 1, -size)
    held: Any = np.cumsum(change)[: count + 1]
    return held


def reserved_over_time(device: SnapshotDevice) -> Any:
    """Bytes that the allocator had from the driver, at the same moments."""
    trace = device.trace
    change = np.where(trace.action == SEGMENT, trace.size, np.where(trace.action == SEGMENT_FREE, -trace.size, 0))
    held: Any = device.reserved - change.sum() + np.append(0, np.cumsum(change))
    return held
