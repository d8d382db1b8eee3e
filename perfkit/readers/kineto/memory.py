"""Allocations over time in a trace of torch.profiler with `profile_memory=True`.

The profiler writes an instant event named "[memory]" at every allocation and release, with the bytes that the
allocator holds from then on. A long series is thinned to its extremes, so that every peak stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from perfkit.errors import InputError
from perfkit.readers.kineto.decode.pieces import Pieces, damage_told
from perfkit.readers.kineto.decode.repaired import read_text
from perfkit.readers.kineto.host import trace_paths

if TYPE_CHECKING:
    from perfkit.readers.run import Run
    from perfkit.table import KernelTable

POINTS = 4000  # of a series: more than a chart has pixels
_DEVICES = {0: "cpu", 1: "cuda"}  # torch's DeviceType
_NAME = b'"[memory]"'


class Allocations(msgspec.Struct, kw_only=True):
    """The bytes that one device's allocator holds over time.

    `time_ns` counts from the first event; `reserved` (from the system) is empty where the allocator tells none, as on a
    CPU. `events` is their number before thinning. Peaks are of all events.
    """

    device: str
    events: int
    time_ns: list[float]
    allocated: list[float]
    reserved: list[float]
    peak_allocated: float
    peak_reserved: float | None
    last_allocated: float


class BackendMemory(msgspec.Struct, kw_only=True):
    """The allocations of one backend by device, or a sentence that says why they cannot be read."""

    name: str
    devices: list[Allocations] = []
    problem: str = ""


class _Args(msgspec.Struct, rename={"allocated": "Total Allocated", "reserved": "Total Reserved"}):
    allocated: float | None = None
    reserved: float | None = None
    device: int | None = msgspec.field(name="Device Type", default=None)
    index: int | None = msgspec.field(name="Device Id", default=None)


class _Event(msgspec.Struct):
    name: str = ""
    ts: float = 0.0
    args: msgspec.Raw = msgspec.Raw(b"{}")


def read_memory(path: Path) -> list[Allocations]:
    """The allocations of every device in the trace at `path`; empty where it holds none.

    Raises `InputError` for a file that cannot be read, or is damaged.
    """
    with damage_told(path):
        series, _ = read_text(path, lambda text: _series(Pieces(path, text)))
    start = min((point[0] for points in series.values() for point in points), default=0.0)
    return [
        _allocations(name, np.array(sorted(points, key=lambda p: p[0])), start)
        for name, points in sorted(series.items())
    ]


def _series(pieces: Pieces) -> dict[str, list[tuple[float, float, float]]]:
    """By device the moments in ns with the bytes allocated and reserved then."""
    series: dict[str, list[tuple[float, float, float]]] = {}
    for event in _events(pieces):
        args = msgspec.json.decode(event.args, type=_Args)
        if args.allocated is not None and np.isfinite([event.ts, args.allocated]).all():
            point = (event.ts * 1e3, args.allocated, args.reserved or 0.0)
            series.setdefault(_device(args), []).append(point)
    return series


def memory_of(source: Run | KernelTable, name: str) -> list[BackendMemory]:
    """The allocations in each trace that `source` (what `perfkit.readers.read` gave) was made of, by backend.

    `name` is that of a table alone. A damaged trace leaves the other backends' in place.
    """
    from perfkit.readers.run import Run

    found = []
    for backend, path in trace_paths(source).items():
        made = BackendMemory(name=backend if isinstance(source, Run) else name)
        found.append(made)
        if path is None:
            made.problem = f"The trace of {backend} is gone, and its allocations with it."
            continue
        try:
            made.devices = read_memory(path)
        except InputError as error:
            made.problem = f"{error.message} {error.hint}".strip()
    return found


def _events(pieces: Pieces) -> Iterator[_Event]:
    for texts in pieces.decoded(_texts):
        for raw in texts:
            if _NAME in bytes(raw):
                event = msgspec.json.decode(raw, type=_Event)
                if event.name == "[memory]":
                    yield event


def _texts(piece: memoryview) -> list[msgspec.Raw]:
    """The events of a piece as raw texts; none where no memory event is among them."""
    texts = msgspec.json.decode(piece, type=list[msgspec.Raw])
    return texts if _NAME in bytes(piece) else []


def _device(args: _Args) -> str:
    kind = _DEVICES.get(args.device if args.device is not None else 0, f"device type {args.device}")
    return kind if kind == "cpu" or args.index is None or args.index < 0 else f"{kind}:{args.index}"


def _allocations(device: str, points: Any, start: float) -> Allocations:
    time, allocated, reserved = points[:, 0] - start, points[:, 1], points[:, 2]
    kept = _extremes(allocated)
    return Allocations(
        device=device,
        events=len(points),
        time_ns=time[kept].tolist(),
        allocated=allocated[kept].tolist(),
        reserved=reserved[kept].tolist() if reserved.any() else [],
        peak_allocated=float(allocated.max()),
        peak_reserved=float(reserved.max()) if reserved.any() else None,
        last_allocated=float(allocated[-1]),
    )


def _extremes(values: Any) -> Any:
    """Indices of at most `POINTS` values: the least and the most of each of as many stretches as that allows."""
    if len(values) <= POINTS:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), POINTS // 2 + 1).astype(int)[:-1]
    ends = [*edges[1:], len(values)]
    stretches = [(int(first), values[first:end]) for first, end in zip(edges, ends, strict=True)]
    both = [first + pick(part) for first, part in stretches for pick in (np.argmin, np.argmax)]
    return np.unique([0, *both, len(values) - 1])
