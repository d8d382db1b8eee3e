"""What a timeline shows of a torch.profiler trace next to its kernels: the host's ranges, operators, runtime calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit.readers.columns import Integers
from perfkit.readers.kineto.decode.events import DeviceEvents, HostEvents

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
    """How many events are around each; `parent` gives the innermost, −1 for none."""
    depth = np.zeros(len(parent), np.int32)
    around = parent
    while (around >= 0).any():
        depth += around >= 0
        around = np.where(around >= 0, parent[np.maximum(around, 0)], -1)
    return depth
