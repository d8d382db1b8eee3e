"""The events of a trace file as columns, all that is known before anything is placed or measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfkit.errors import InputError
from perfkit.readers.kineto.decode.collect import Collector
from perfkit.readers.kineto.decode.events import DeviceEvents, HostEvents, MemoryEvents
from perfkit.readers.kineto.decode.stream import RECORD, read_text
from perfkit.readers.kineto.decode.typed import Counter, DecodingFacts, decode

if TYPE_CHECKING:
    from perfkit.readers.counters import Track

_FEW = 0.01  # of the events
_DEVICES = 64  # a process id below this is a device's


@dataclass(frozen=True)
class TraceContent:
    """The content of a trace: events of the `host` and of the `device`, allocations, and what else the file says,
    `about`.

    All are of one process group's rank. A trace of several is to have a column of ranks in both; threads and devices
    of another rank are lanes and devices like others.
    """

    host: HostEvents
    device: DeviceEvents
    memory: MemoryEvents
    about: DecodingFacts
    counters: list[Track] = field(default_factory=list)


def read_events(path: Path, wanted: Callable[[str], bool]) -> TraceContent:
    """The events of the trace at `path`; `wanted` says by name which operators' arguments are kept.

    Raises `InputError` for a file that cannot be read, is damaged or is not a trace.
    """
    events, remark = read_text(path, lambda text: _read(path, text, wanted))
    events.about.remarks += [remark] if remark else []
    return events


def _read(path: Path, text: Iterable[bytes], wanted: Callable[[str], bool]) -> TraceContent:
    about = DecodingFacts()
    collector = Collector(wanted)
    for events in decode(path, about, text):
        collector.add(events)
        del events  # the next ones then take their memory, while it is in the cache
    host, device = collector.finish()
    memory = collector.memory.taken(collector.origin_us)
    if not (about.of_torch or len(host) or len(device) or len(memory)):
        raise _foreign(path, about)
    about.unread = {word: n for word, n in collector.unread.items() if n > _FEW * about.events}
    about.first_ns = round(collector.origin_us * 1e3)
    about.origin_ns += about.first_ns
    tracks = counter_tracks(collector.counters, collector.origin_us) if collector.counters else []
    return TraceContent(host, device, memory, about, tracks)


def counter_tracks(events: Sequence[Counter], origin_us: float) -> list[Track]:
    """The counter tracks of a trace: one for each number in the events of a name, of the device that its process is.

    An event says how the counter is from then on; a track, how it was until then: each takes the value before it.
    """
    from perfkit.readers.counters import measure_of, tracks_of

    samples: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for event in events:
        device = event.pid if isinstance(event.pid, int) and 0 <= event.pid < _DEVICES else -1
        for key, value in event.args.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                alone = len(event.args) == 1 and not measure_of(key)
                name = event.name if alone else key if measure_of(key) else f"{event.name} {key}".strip()
                samples.setdefault((name, device), []).append((event.ts, float(value)))
    return tracks_of(
        (name, device, np.rint((ts - origin_us) * 1e3).astype(np.int64), np.append(np.nan, value[:-1]))
        for (name, device), found in samples.items()
        for ts, value in [np.array(sorted(found)).T]
    )


def _foreign(path: Path, about: DecodingFacts) -> InputError:
    """The refusal of a list of events in which torch.profiler wrote none."""
    if about.lost == about.events:
        return InputError(f"{path} is JSON, but not a torch.profiler trace: its list holds no events.", RECORD)
    return InputError(
        f"{path} is a Chrome trace of another tool: torch.profiler wrote none of its {about.events} events.",
        f"Open it in ui.perfetto.dev. {RECORD}",
    )
