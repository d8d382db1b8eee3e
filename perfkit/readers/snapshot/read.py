"""A memory snapshot's plain objects → `perfkit.memory.records.Snapshot`.

torch 2.1 wrote `segments` and `device_traces`; later ones add times (2.2), `allocator_settings` (2.3),
`external_annotations` (2.5), `compile_context` (2.8), `user_metadata` (2.10) and `pool_id` (2.12). Blocks of torch 2.0
keep their stack in a `history`, and have no address. A device on which nothing was allocated may still have the event
of a snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.errors import InputError
from perfkit.memory.records import ACTIONS, OTHER, AllocatorEvents, MemoryBlock, Segment, Snapshot, SnapshotDevice
from perfkit.readers.kineto.decode.typed import collector_off
from perfkit.readers.snapshot import owned
from perfkit.readers.snapshot.pickled import plain_objects
from perfkit.readers.snapshot.stacks import StackNumbers

_CHUNK = 100_000  # events that become columns at once, before their objects are given back
_AGAIN = "Write it again with torch.cuda.memory._dump_snapshot."
_MOST = 1 << 62
_EMPTY = "Take it while the program holds tensors on a GPU, after torch.cuda.memory._record_memory_history()."


def read_snapshot(path: Path) -> Snapshot:
    """Read the snapshot at `path`, and run nothing in it. Raises `InputError` for a damaged or another file.

    A list of segments, as `torch.cuda.memory_snapshot()` gives it, is a snapshot without events.
    """
    with collector_off():
        content = plain_objects(path)
        if isinstance(content, list):
            content = {"segments": content, "device_traces": []}
        try:
            found = _snapshot(str(path), content, path.stat().st_size)
        except _Unlike as error:
            raise InputError(f"{path} is not a memory snapshot of PyTorch: {error}.", _AGAIN) from error
    if not found.devices:
        raise InputError(f"{path} is a memory snapshot of PyTorch in which no device has memory or events.", _EMPTY)
    return found


class _Unlike(Exception):
    """Something is not as PyTorch writes it."""


def _snapshot(source: str, content: Any, size: int) -> Snapshot:
    parts = _mapping(content, "the whole")
    if "segments" not in parts or "device_traces" not in parts:
        raise _Unlike("it has no segments, or no device_traces")
    segments, traces = _items(parts["segments"], "segments"), _items(parts["device_traces"], "device_traces")
    if sum(len(_items(trace, "a trace")) for trace in traces) > size:
        raise _Unlike("it has more events than bytes")
    stacks = StackNumbers()
    by_device: dict[int, list[Segment]] = {}
    blocks = 0
    for segment in segments:
        found = _mapping(segment, "a segment")
        blocks += len(_items(found.get("blocks", []), "blocks"))
        if blocks > size:
            raise _Unlike("it has more blocks than bytes")
        by_device.setdefault(_whole(found.get("device", 0), "device"), []).append(_segment(found, stacks))
    columns = [_trace(trace, stacks) for trace in traces]
    indices = sorted({*by_device, *(number for number, trace in enumerate(columns) if (trace.action != OTHER).any())})
    empty = _trace([], stacks)
    devices = [
        SnapshotDevice(index, by_device.get(index, []), columns[index] if 0 <= index < len(columns) else empty)
        for index in indices
    ]
    settings = parts.get("allocator_settings")
    return Snapshot(
        source,
        devices,
        stacks.all,
        dict(settings) if isinstance(settings, dict) else {},
        owned.known(parts.get(owned.KNOWN)),
        owned.blocks(parts.get(owned.BLOCKS)),
    )


def _segment(found: Mapping[str, Any], stacks: StackNumbers) -> Segment:
    address = _whole(found.get("address", 0), "address")
    blocks, at = [], address
    for one in found.get("blocks", []):
        block = _block(_mapping(one, "a block"), at, stacks)
        blocks.append(block)
        at = block.address + block.size
    allocated = found.get("allocated_size")
    return Segment(
        address,
        _whole(found.get("total_size", 0), "total_size"),
        _whole(found.get("stream", 0), "stream"),
        found.get("segment_type") == "large",
        found.get("is_expandable") is True,
        found.get("segment_pool_id", (0, 0)) not in ((0, 0), [0, 0]),
        tuple(blocks),
        None if allocated is None else _whole(allocated, "allocated_size"),
    )


def _block(found: Mapping[str, Any], address: int, stacks: StackNumbers) -> MemoryBlock:
    """A block; without an address of its own it begins at `address`, where the previous one ends."""
    size = _whole(found.get("size", 0), "size")
    frames = found.get("frames")
    requested = found.get("requested_size")
    history = found.get("history")
    if isinstance(history, list) and history and isinstance(history[0], dict):
        frames = frames or history[0].get("frames")
        requested = history[0].get("real_size") if requested is None else requested
    state = found.get("state")
    return MemoryBlock(
        _whole(found.get("address", address), "address"),
        size,
        None if requested is None else min(_whole(requested, "requested_size"), size),
        state if isinstance(state, str) else "",
        stacks.number(frames),
    )


def _trace(events: list[Any], stacks: StackNumbers) -> AllocatorEvents:
    """The columns of a device's events. The objects are given back on the way: they take ten times as much."""
    parts: list[list[Any]] = []
    timed = bool(events) and isinstance(events[0], dict) and "time_us" in events[0]
    for begin in range(0, len(events), _CHUNK):
        chunk = events[begin : begin + _CHUNK]
        events[begin : begin + _CHUNK] = [None] * len(chunk)
        if not all(type(one) is dict for one in chunk):
            raise _Unlike("one of its events is not a dictionary")
        parts.append(_columns(chunk, timed, stacks))
        stacks.forget()
    if not parts:
        none = np.zeros(0, np.int64)
        return AllocatorEvents(none.astype(np.uint8), none, none, none, none.astype(np.int32))
    return AllocatorEvents(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _columns(chunk: list[dict[str, Any]], timed: bool, stacks: StackNumbers) -> list[Any]:
    """Action, address, size, time and stack of some events."""
    names = ("action", "addr", "size", *(["time_us"] if timed else []), "frames")
    try:
        found = list(zip(*map(itemgetter(*names), chunk), strict=True))
    except KeyError:  # what failed has what the device had left in place of an address, and frames may lack
        rows = [one | {"addr": one.get("addr", one.get("device_free", 0))} for one in chunk]
        found = [tuple(row.get(name, 0) for row in rows) for name in names]
    try:
        actions = np.fromiter(map(ACTIONS.get, found[0], repeat(OTHER)), np.uint8, len(chunk))
    except TypeError as error:
        raise _Unlike("the action of an event is not a word") from error
    numbers = [_whole_numbers(column, name) for name, column in zip(names[1:-1], found[1:-1], strict=True)]
    if not timed:
        numbers.append(np.zeros(0, np.int64))
    return [actions, *numbers, np.fromiter(map(stacks.number, found[-1]), np.int32, len(chunk))]


def _whole_numbers(values: Sequence[Any], name: str) -> Any:
    try:
        found = np.array(values)
    except ValueError as error:  # lists of different lengths among them
        raise _Unlike(f"the {name} of an event is not a number") from error
    if found.ndim != 1 or found.dtype != np.int64 or (np.abs(found) > _MOST).any():
        raise _Unlike(f"the {name} of an event is not a whole number of an allocator")
    return found


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or abs(value) > _MOST:
        raise _Unlike(f"{name} is not a whole number of an allocator")
    return value


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Unlike(f"{name} is not a dictionary")
    return value


def _items(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise _Unlike(f"{name} is not a list")
    return value
