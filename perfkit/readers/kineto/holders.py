"""Owners of the memory in a trace with allocations: by the pass, module and operator of each, and perfkit's notes.

A trace that perfkit recorded has notes of what the program's own objects held (`capture/agent/tracing/held.py`): they
name parameters, gradients, buffers and optimizer state. Everything else is inferred as in a snapshot
(`perfkit.memory.kinds`), with the place of an allocation instead of its stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.memory import moments, phases, remedies
from perfkit.memory.blocks import checkpointing
from perfkit.memory.kinds import StackFacts, kinds_of
from perfkit.memory.lifetimes import Allocations, allocated_over_time, allocations, with_earlier
from perfkit.memory.records import ALLOC, FREE, AllocatorEvents, NamedTensor, SnapshotDevice
from perfkit.memory.results import DeviceMemory, Moment
from perfkit.numbers import unique
from perfkit.profile_names import (
    BACKWARD,
    FORWARD_PARTS,
    FORWARD_PASSES,
    HELD,
    IN,
    OPTIMIZER,
    OPTIMIZER_STEP,
    ROOT,
    ZERO_GRAD,
)
from perfkit.readers.kineto.attribution.columns import Placed
from perfkit.readers.kineto.decode.events import PYTHON, HostEvents, MemoryEvents
from perfkit.readers.kineto.decode.read import TraceContent
from perfkit.readers.kineto.memory import device_name
from perfkit.readers.snapshot.owned import is_owner

_ROUND = 512  # bytes: blocks of the CUDA allocator are whole multiples
_MOST_NOTES = 2_000_000
_CODE = re.compile(rf"(?:{IN})?(.*\.py)\(\d+\): ")  # a function of a stack, or of a library as perfkit notes it
_OWN_STEPS = {f"{OPTIMIZER_STEP}{name}.step" for name in phases.TORCH_OPTIMIZERS}
CPU = "On a CPU PyTorch counts allocations since the recording began; of earlier ones the program's own tensors count."


class _Place(NamedTuple):
    """A place in a program. `again`: in a forward pass that is computed again; `fusible`: in one of PyTorch's
    optimizers."""

    phase: int = phases.UNKNOWN
    module: str = ""
    operator: str = ""
    again: bool = False
    fusible: bool = False


@dataclass(frozen=True)
class _Where:
    """Place of each event about memory: an index into `places`, from 1 on."""

    code: Integers
    places: list[_Place]

    def mask(self, test: Callable[[_Place], bool]) -> Booleans:
        """For each place whether `test` holds."""
        return np.array([test(place) for place in self.places], bool)


def holders(events: TraceContent, placed: Placed, layers: str = "") -> list[DeviceMemory]:
    """Return who holds the memory of each device of a trace; none where it has no allocations with addresses.

    `layers` is the pattern of the model's repeated blocks, for what checkpointing them would save.
    """
    memory = events.memory
    whole = np.isfinite(memory.time_ns) & np.isfinite(memory.bytes) & np.isfinite(memory.address)
    whole &= np.isfinite(memory.allocated)
    made = []
    for name in sorted({device_name(*device) for device in memory.devices}):
        mine = np.array([device_name(*device) == name for device in memory.devices], bool)[memory.device]
        rows = np.flatnonzero(whole & mine)
        rows = rows[np.argsort(memory.time_ns[rows], kind="stable")]
        if len(rows):
            made.append(_device(name, events, placed, rows, layers))
    return made


def _device(name: str, events: TraceContent, placed: Placed, rows: Integers, layers: str) -> DeviceMemory:
    memory, time = events.memory, events.memory.time_ns[rows] - events.memory.origin_ns
    where = _places(events.host, placed, memory, rows, time)
    size = memory.bytes[rows].astype(np.int64)
    trace = AllocatorEvents(
        np.where(size > 0, ALLOC, FREE).astype(np.uint8), memory.address[rows].astype(np.int64), np.abs(size),
        (time / 1e3).astype(np.int64), where.code,
    )  # fmt: skip
    notes = list(_notes(events, time))
    found = allocations(SnapshotDevice(0, [], trace), exact=True)
    found = _with_noted(found, trace, notes, 1 if name == "cpu" else _ROUND)
    before = int(memory.allocated[rows[0]] - size[0])
    if name != "cpu":
        found = _with_rest(found, before, len(trace))
    kinds = kinds_of(_facts_of(where), trace, found, notes)
    held = allocated_over_time(found, len(trace))
    reserved = memory.reserved[rows]

    def who(index: int) -> tuple[str, str, int, str]:
        place = where.places[found.stack[index]]
        number = int(kinds.name[index])
        return (kinds.names[number] if number >= 0 else place.module, "", 0, place.operator)

    def at(index: int) -> Moment:
        moment = moments.moment(found, kinds, found.alive_at(index - 1), who)
        known = index and np.isfinite(reserved[index - 1]) and reserved[index - 1] > 0
        moment.reserved = int(reserved[index - 1]) if known else None
        moment.time_ns = float(time[index - 1]) if index else None
        return moment

    course = moments.course(found, kinds, len(trace), time.astype(float), None)
    made = DeviceMemory(
        source="", device=name, events=len(trace), peak=at(int(held.argmax())), end=at(len(trace)), course=course,
        notes=[CPU] if name == "cpu" and notes else [],
    )  # fmt: skip
    phase = np.array([place.phase for place in where.places])
    modules = [place.module for place in where.places]
    optimizes = where.mask(lambda place: place.phase == phases.OPTIMIZER and place.fusible)
    made.remedies = remedies.of_device(found, kinds, len(trace), optimizes[found.stack], made)
    made.remedies += checkpointing(found, kinds, trace, (phase, modules), layers)
    return made


def _places(host: HostEvents, placed: Placed, memory: MemoryEvents, rows: Integers, time: Any) -> _Where:
    """The place of each event: that of the innermost host event around it, or of what the step's thread did then."""
    places = placed.places
    lanes = {thread: number for number, (_, thread) in enumerate(host.lanes)}
    lane = np.array([lanes.get(thread, -1) for thread in memory.threads] or [-1])[memory.thread[rows]]
    own = _around(host, lane, time)
    beside = _around(host, np.full(len(rows), placed.steps.lane), time)
    names = [*places.pass_names, ""]
    pass_ = np.where(own >= 0, places.pass_[own], -1)
    pass_ = np.where((pass_ < 0) & (beside >= 0), places.pass_[beside], pass_)
    module = np.where(own >= 0, places.module[own], -1)
    operator = np.where(own >= 0, places.operator[own], -1)
    operator = np.where(operator >= 0, host.name[operator], -1)
    by_range = np.where(own >= 0, places.evidence[own] == 1, False)
    optimizes = np.append(_in_torch_optim(host), False)
    fusible = optimizes[own] | optimizes[beside]
    keys = np.stack([pass_, module, operator, by_range.astype(np.int64), fusible.astype(np.int64)], axis=1)
    distinct, code = np.unique(keys, axis=0, return_inverse=True)
    found = [_Place()]
    for p, m, o, ranged, fuses in distinct.tolist():
        path = places.module_names[m] if m >= 0 else ""
        again = bool(ranged) and names[p] == BACKWARD and path not in ("", ROOT)
        operator_name = host.names[o] if o >= 0 else names[p]
        found.append(_Place(_phase(names[p], path), path, operator_name, again, bool(fuses)))
    return _Where(code.reshape(-1) + 1, found)


def _in_torch_optim(host: HostEvents) -> Booleans:
    """Return which events an optimizer of PyTorch's own is around, and not a class of the program's.

    Stacks say it. Without them a class is known by name alone, so it also has to work on lists, as PyTorch's own do.
    """
    files = [code[1].replace("\\", "/") if (code := _CODE.match(name)) else "" for name in host.names]
    found = host.nearest(host.named([phases.is_torch_optim(file) for file in files])) >= 0
    if (host.category == PYTHON).any():
        return found
    steps = host.nearest(host.named([name in _OWN_STEPS for name in host.names])) >= 0
    lists = host.nearest(host.named([name.startswith("aten::_foreach_") for name in host.names])) >= 0
    return found | (steps & lists)


def _phase(name: str, module: str) -> int:
    if name in (BACKWARD, OPTIMIZER):
        return phases.BACKWARD if name == BACKWARD else phases.OPTIMIZER
    if name in (*FORWARD_PASSES, *FORWARD_PARTS) and module not in ("", ROOT):
        return phases.FORWARD
    return phases.OUTSIDE


def _around(host: HostEvents, lane: Integers, time: Any) -> Integers:
    """The innermost host event around each moment on its thread, −1 for none."""
    found = np.full(len(time), -1, np.int64)
    for number in unique(lane[lane >= 0]).tolist():
        first, last = np.searchsorted(host.lane, [number, number + 1])
        mine = np.flatnonzero(lane == number)
        at = first + np.searchsorted(host.start[first:last], time[mine], side="right") - 1
        at = np.where(at >= first, at, -1)
        while len(over := np.flatnonzero((at >= 0) & (host.end[at] < time[mine]))):
            at[over] = host.parent[at[over]]
        found[mine] = at
    return found


def _facts_of(where: _Where) -> StackFacts:
    phase = np.array([place.phase for place in where.places])
    none = np.zeros(len(phase), bool)
    zeroes = where.mask(lambda place: place.operator == ZERO_GRAD or "zero_grad" in place.operator)
    again = where.mask(lambda place: place.again)
    caches = where.mask(lambda place: "cache" in place.module.lower())
    return StackFacts(phase, again, none, zeroes, caches, none, phases.UNKNOWN)


def _notes(events: TraceContent, time: Any) -> Iterator[tuple[int, int, NamedTensor]]:
    """The moments, addresses and owners that perfkit noted; nothing of notes that are damaged."""
    notes = events.about.held
    host, left = events.host, _MOST_NOTES
    for row in np.flatnonzero(host.named([name.startswith(HELD) for name in host.names])).tolist():
        number = re.fullmatch(r"\d{1,9}", host.names[host.name[row]].removeprefix(HELD))
        if number is None or not isinstance(notes, list) or int(number[0]) >= len(notes):
            continue
        moment = int(np.searchsorted(time, host.start[row])) - 1
        entries = notes[int(number[0])]
        for entry in entries if isinstance(entries, list) else ():
            left -= 1
            if left > 0 and is_owner(entry):
                kind, name, address, size = entry
                yield moment, address, NamedTensor(kind, name, size)


def _with_noted(
    found: Allocations, trace: AllocatorEvents, notes: list[tuple[int, int, NamedTensor]], step: int
) -> Allocations:
    """Add what was noted and no event allocated: it was there before, up to the next allocation at its address."""
    at: dict[int, list[int]] = {}
    for index, address in enumerate(found.address.tolist()):
        at.setdefault(address, []).append(index)
    earlier: dict[int, tuple[int, int]] = {}
    for moment, address, said in notes:
        mine = at.get(address, [])
        if address in earlier or any(found.begin[i] <= moment < found.end[i] for i in mine):
            continue
        end = min((int(found.begin[i]) for i in mine if found.begin[i] > moment), default=len(trace))
        if not any(found.begin[i] <= moment for i in mine):
            earlier[address] = (-(-said.size // step) * step, end)
    columns = [np.array(values, np.int64) for values in (
        list(earlier), [size for size, _ in earlier.values()], [end for _, end in earlier.values()])]  # fmt: skip
    return with_earlier(found, *columns)


def _with_rest(found: Allocations, before: int, count: int) -> Allocations:
    """Add one allocation of the bytes that the allocator held before, and nothing accounts for."""
    rest = before - int(found.size[found.begin < 0].sum())
    if rest <= 0:
        return found
    return with_earlier(found, *(np.array([value], np.int64) for value in (-1, rest, count)))
