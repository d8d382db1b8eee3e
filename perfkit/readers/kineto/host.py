"""What a timeline shows of a torch.profiler trace beside its kernels: the host's ranges, operators and runtime calls.

The kernel table keeps none of them; the trace file does, and is read a second time for them. Arguments are skipped, so
this costs about as much as decoding the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfkit.errors import InputError
from perfkit.readers.columns import Integers
from perfkit.readers.kineto.decode.events import DeviceEvents, HostEvents
from perfkit.readers.kineto.decode.read import read_events
from perfkit.readers.kineto.decode.typed import collector_off
from perfkit.readers.kineto.place.launches import find_launches

if TYPE_CHECKING:
    from perfkit.readers.run import Run
    from perfkit.table import KernelTable

# Words of a host event's kind, in the order of the numbers of `decode.events`.
KINDS = ("cpu_op", "user_annotation", "runtime", "python_function", "overhead")


_PACKED = 0.1  # a trace's compressed size in its plain one, about


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


def read_host(path: Path) -> HostTrace:
    """The host events of the trace at `path` (JSON, plain or gzip). Raises `InputError` as `read_trace` does."""
    with collector_off():
        events = read_events(Path(path), lambda name: False)
    return _of(events.host, events.device)


def _of(host: HostEvents, device: DeviceEvents) -> HostTrace:
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
        launched_by=find_launches(host, device).call,
    )


def _thread_names(lanes: list[tuple[int | str, int | str]]) -> list[str]:
    several = len({process for process, _ in lanes}) > 1
    return [f"process {process} thread {thread}" if several else f"thread {thread}" for process, thread in lanes]


def _depth(parent: Integers) -> Integers:
    """How many events are around each; `parent` gives the innermost, −1 for none."""
    depth = np.zeros(len(parent), np.int32)
    around = parent
    while (around >= 0).any():
        depth += around >= 0
        around = np.where(around >= 0, parent[np.maximum(around, 0)], -1)
    return depth


def host_traces(source: Run | KernelTable, largest: float = float("inf")) -> dict[str, HostTrace]:
    """The host's part of each trace that `source` (what `perfkit.readers.read` gave) was made of, by backend's name.

    A backend whose trace is gone, damaged, larger than `largest` compressed bytes or of a profiler without host events
    has none; a table alone is "profile".
    """
    found: dict[str, HostTrace] = {}
    for name, path in trace_paths(source).items():
        try:
            if path is not None and path.is_file() and _packed_size(path) <= largest:
                found[name] = read_host(path)
        except InputError:
            continue  # the kernel table is whole: its kernels are drawn without the host
    return found


def trace_paths(source: Run | KernelTable) -> dict[str, Path | None]:
    """The torch.profiler trace of each backend that names one; None where it is gone, or outside the run folder.

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
