"""Content of a trace of torch.profiler next to its kernel table: the host's events, and allocations over time.

A timeline and a chart of memory show them. `read(path, whole=True)` keeps them in the table when it reads the trace;
else the file is read once more, without arguments, and both are kept for whoever asks next.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfkit.columns import Integers
from perfkit.errors import InputError
from perfkit.readers.kineto.attribution.gpu_steps import find_launches
from perfkit.readers.kineto.decode.events import DeviceEvents, HostEvents
from perfkit.readers.kineto.decode.read import TraceContent, read_events
from perfkit.readers.kineto.decode.typed import collector_off
from perfkit.readers.kineto.memory import AllocatorBytes, BackendMemory, allocations

if TYPE_CHECKING:
    from perfkit.readers.run import Run
    from perfkit.table import KernelTable

LARGEST = 16_000_000  # bytes, compressed; the timeline of a larger trace does not fit into a report
_PACKED = 0.1  # a trace's compressed size in its plain one, about


@dataclass(frozen=True)
class RecordedTrace:
    """The content of one trace; `host` is None where it was not kept."""

    host: HostTrace | None
    memory: list[AllocatorBytes]

    @classmethod
    def of(cls, events: TraceContent, launched_by: Integers, path: Path) -> RecordedTrace:
        """Keep what `events` hold, without the host's events of a trace that is larger than `LARGEST`."""
        fits = _packed_size(path) <= LARGEST
        return cls(host_of(events.host, events.device, launched_by) if fits else None, allocations(events.memory))


def read_recorded(path: Path) -> RecordedTrace:
    """Read the trace at `path` (JSON, plain or gzip). Raises `InputError` as `read_trace` does."""
    with collector_off():
        events = read_events(Path(path), lambda name: False)
        launched_by = find_launches(events.host, events.device).call
        return RecordedTrace(host_of(events.host, events.device, launched_by), allocations(events.memory))


def host_traces(source: Run | KernelTable, largest: float = float("inf")) -> dict[str, HostTrace]:
    """Return the host's part of each trace that `source` (what `perfkit.readers.read` gave) was made of, by backend.

    A backend whose trace is gone, damaged, larger than `largest` compressed bytes or of a profiler without host events
    has none; a table alone is "profile".
    """
    found: dict[str, HostTrace] = {}
    for name, path in trace_paths(source).items():
        try:
            if path is not None and path.is_file() and _packed_size(path) <= largest:
                host = _recorded(source, name, path, with_host=True).host
                assert host is not None
                found[name] = host
        except InputError:
            continue  # the kernel table is whole: its kernels are drawn without the host
    return found


def memory_of(source: Run | KernelTable, name: str) -> list[BackendMemory]:
    """Return the allocations in each trace that `source` was made of, by backend.

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
            made.devices = _recorded(source, backend, path).memory
        except InputError as error:
            made.problem = f"{error.message} {error.hint}".strip()
    return found


def _recorded(source: Run | KernelTable, name: str, path: Path, with_host: bool = False) -> RecordedTrace:
    """Return what `source` keeps of the trace at `path`, or read it, and keep it there."""
    kept = source.recorded.get(name)
    if not isinstance(kept, RecordedTrace) or (with_host and kept.host is None):
        kept = source.recorded[name] = read_recorded(path)
    return kept


def trace_paths(source: Run | KernelTable) -> dict[str, Path | None]:
    """Return the torch.profiler trace of each backend that names one; None where it is gone, or outside the run folder.

    A table alone is "profile".
    """
    from perfkit.readers.run import Run

    if isinstance(source, Run):
        usable = [b for b in source.manifest.backends if b.trace and not b.unusable]
        return {b.name: _inside(source.folder, b.name, b.trace) for b in usable}
    return {"profile": Path(source.source["path"])} if source.source.get("reader") == "kineto" else {}


def _packed_size(path: Path) -> float:
    return path.stat().st_size * (1.0 if path.suffix == ".gz" else _PACKED)


def _inside(folder: Path, backend: str, trace: str) -> Path | None:
    """The trace that a manifest names, None where that leads out of the run folder: manifests come from elsewhere."""
    root = folder.resolve()
    for path in ((root / trace).resolve(), (root / backend / trace).resolve()):
        if path.is_relative_to(root) and path.is_file():
            return path
    return None


# Words of a host event's kind, in the order of the numbers of `decode.events`.
KINDS = ("cpu_op", "user_annotation", "runtime", "python_function", "overhead")


@dataclass(frozen=True)
class HostTrace:
    """Host events sorted by thread, then start, a parent before its children; times in ns from the trace's first event.

    `name` is an index into `names`, `kind` into `KINDS`, `lane` into `lanes` (names of threads); `depth` counts the
    events around one on its thread. `device_start` are the starts of the GPU's activities, sorted, and `launched_by`
    the host event that launched each, −1 for none in the trace.
    """

    names: list[str]
    name: Integers
    kind: Integers
    lane: Integers
    lanes: list[str]
    depth: Integers
    start: Integers
    end: Integers
    device_start: Integers
    launched_by: Integers

    def __len__(self) -> int:
        return len(self.name)


def host_of(host: HostEvents, device: DeviceEvents, launched_by: Integers) -> HostTrace:
    """Return the host's part of a trace; `launched_by` is the host event that launched each activity of a GPU."""
    return HostTrace(
        names=host.names,
        name=host.name,
        kind=host.category,
        lane=host.lane,
        lanes=_thread_names(host.lanes),
        depth=_depth(host.parent),
        start=host.start,
        end=host.end,
        device_start=device.start,
        launched_by=launched_by,
    )


def _thread_names(lanes: list[tuple[int | str, int | str]]) -> list[str]:
    several = len({process for process, _ in lanes}) > 1
    return [f"process {process} thread {thread}" if several else f"thread {thread}" for process, thread in lanes]


def _depth(parent: Integers) -> Integers:
    """Return how many events are around each; `parent` gives the innermost, −1 for none."""
    depth = np.zeros(len(parent), np.int32)
    around = parent
    while (around >= 0).any():
        depth += around >= 0
        around = np.where(around >= 0, parent[np.maximum(around, 0)], -1)
    return depth
