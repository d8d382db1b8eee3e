"""From snapshots to a report: the peak, the end, the course, what is unused, what failed, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from perfkit.memory import remedies
from perfkit.memory.kinds import Kinds, StackFacts, kinds_of
from perfkit.memory.lifetimes import BEFORE, Allocations, allocated_over_time, allocations, reserved_over_time
from perfkit.memory.moments import course, moment
from perfkit.memory.phases import line_of, of_torch_optim, table
from perfkit.memory.records import ALLOC, FAILED, FREE, FREED, PENDING, Snapshot, SnapshotDevice, StackFrame
from perfkit.memory.results import DeviceMemory, Failure, MemoryReport, Moment, Unused

MENTIONED = 0.1  # of the peak: a smaller part that was allocated before the first event is not mentioned
NO_STACKS = (
    "No stacks were recorded, so nothing says what an allocation is for: "
    "torch.cuda.memory._record_memory_history() before the first one records them."
)
NO_EVENTS = "No events were recorded: what is held is known at the end alone."
ROUNDED = (
    "Blocks that were freed before the end count with their sizes rounded up to 512 bytes, as the allocator does: "
    "{share:.1%} of the peak. What it left unsplit of larger blocks is unknown."
)
EARLIER = (
    "{share:.1%} of the peak was there before the first event and has no stack: "
    "torch.cuda.memory._record_memory_history() before the model is built, with room for all events, records it."
)
DIFFERS = "The blocks add up to {blocks:,} bytes, and the segments say {segments:,}: the snapshot is not whole."
EXCEEDS = (
    "At the peak more is allocated than reserved: the snapshot lacks events, or its parts are of different programs."
)


def analyse(snapshots: Sequence[Snapshot], title: str) -> MemoryReport:
    """Return the report of some snapshots."""
    devices = [device_memory(snapshot, device) for snapshot in snapshots for device in snapshot.devices]
    warnings = [warning for snapshot in snapshots for warning in snapshot.warnings]
    return MemoryReport(title=title, devices=devices, warnings=warnings)


def device_memory(snapshot: Snapshot, device: SnapshotDevice) -> DeviceMemory:
    """Return the memory of one device of a snapshot."""
    found = allocations(device)
    trace, count = device.trace, len(device.trace)
    facts = StackFacts.of(snapshot.stacks) if any(snapshot.stacks) else None
    known = [(count - 1, address, said) for address, said in snapshot.known.items()]
    kinds = kinds_of(facts, trace, found, known)
    held, reserved = allocated_over_time(found, count), reserved_over_time(device)
    time_ns = (trace.time_us - trace.time_us[:1]) * 1000.0
    highest = int(held.argmax())

    def at(index: int) -> Moment:
        made = moment(found, kinds, found.alive_at(index - 1), lambda one: _owner(snapshot, found, kinds, one))
        made.reserved = int(reserved[index])
        made.time_ns = float(time_ns[index - 1]) if index and len(time_ns) else None
        return made

    made = DeviceMemory(
        source=Path(snapshot.source).name,
        device=f"cuda:{device.index}",
        events=count,
        peak=at(highest),
        end=at(count),
        course=course(found, kinds, count, time_ns, reserved),
        unused=_unused(device),
        failures=_failures(snapshot, device, held, reserved),
    )
    made.notes = _notes(snapshot, device, found, made, highest - 1)
    optimizes = table(snapshot.stacks, of_torch_optim)[found.stack]
    made.remedies = remedies.of_device(found, kinds, count, optimizes, made)
    if made.failures:
        made.remedies = [*remedies.of_failure(snapshot, trace, facts, made), *made.remedies]
    return made


def _owner(snapshot: Snapshot, found: Allocations, kinds: Kinds, index: int) -> tuple[str, str, int, str]:
    line = line_of(snapshot.stacks[found.stack[index]]) or StackFrame("", 0, "")
    number = int(kinds.name[index])
    return (kinds.names[number] if number >= 0 else "", line.file, line.line, line.function)


def _unused(device: SnapshotDevice) -> Unused:
    free = [block.size for block in device.blocks if block.free]
    return Unused(
        free=sum(free),
        largest=max(free, default=0),
        blocks=len(free),
        pending=sum(block.size for block in device.blocks if block.state in PENDING),
        expandable=any(segment.expandable for segment in device.segments),
    )


def _failures(snapshot: Snapshot, device: SnapshotDevice, held: np.ndarray, reserved: np.ndarray) -> list[Failure]:
    trace, found = device.trace, []
    for index in (trace.action == FAILED).nonzero()[0].tolist():
        line = line_of(snapshot.stacks[trace.stack[index]])
        left = int(trace.address[index])
        where = f"{line.file}:{line.line} in {line.function}" if line else ""
        found.append(
            Failure(
                bytes=int(trace.size[index]),
                device_free=left if left > 0 else None,
                allocated=int(held[index + 1]),
                reserved=int(reserved[index + 1]),
                where=where,
            )
        )
    return found


def _notes(snapshot: Snapshot, device: SnapshotDevice, found: Allocations, made: DeviceMemory, peak: int) -> list[str]:
    notes = []
    if not any(snapshot.stacks):
        notes.append(NO_STACKS)
    if not np.isin(device.trace.action, (ALLOC, FREE, FREED)).any():
        notes.append(NO_EVENTS)
    alive = found.alive_at(peak)
    earlier = int(found.size[alive & (found.begin == BEFORE) & (found.stack == 0)].sum())
    if any(snapshot.stacks) and earlier >= MENTIONED * made.peak.allocated > 0:
        notes.append(EARLIER.format(share=earlier / made.peak.allocated))
    rounded = int(found.size[alive & ~found.exact].sum())
    if rounded:
        notes.append(ROUNDED.format(share=rounded / max(made.peak.allocated, 1)))
    assert made.end is not None
    if device.segments and made.end.allocated != device.allocated:
        notes.append(DIFFERS.format(blocks=made.end.allocated, segments=device.allocated))
    if device.segments and made.peak.allocated > (made.peak.reserved or 0):
        notes.append(EXCEEDS)
    return notes
