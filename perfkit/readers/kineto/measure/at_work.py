"""When the GPU worked: its activities, and what an excerpt lacks before the first of a stream."""

from __future__ import annotations

import numpy as np

from perfkit.readers.columns import Integers
from perfkit.readers.intervals import Cover
from perfkit.readers.kineto.decode.events import DeviceEvents, HostEvents

LATE = 1_000_000  # ns from the launch on an idle GPU: some 5 µs are usual, where the host batches launches more


def at_work(host: HostEvents, device: DeviceEvents, launch: Integers) -> Cover:
    """The union of all activities, and the time in which the first of a stream waited for work that the trace lacks.

    `launch` is the host event that launched each activity, −1 for none. A GPU starts in µs what it has only to begin,
    and what a stream waits for was launched before: where the trace shows nothing of it, it began before the trace.
    """
    streams = np.stack([device.device, device.stream])
    first = np.unique(streams, axis=1, return_index=True)[1]
    first = first[launch[first] >= 0]
    issued, start = host.end[launch[first]], device.start[first]
    late = start - issued > LATE
    return Cover(np.append(device.start, issued[late]), np.append(device.end, start[late]))
