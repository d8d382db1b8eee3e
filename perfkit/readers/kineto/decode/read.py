"""The events of a trace file as columns, all that is known before anything is placed or measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from perfkit.errors import InputError
from perfkit.readers.kineto.decode.collect import Collector
from perfkit.readers.kineto.decode.events import DeviceEvents, HostEvents, MemoryEvents
from perfkit.readers.kineto.decode.stream import RECORD, read_text
from perfkit.readers.kineto.decode.typed import About, decode

_FEW = 0.01  # of the events


@dataclass(frozen=True)
class Events:
    """The content of a trace: events of the `host` and of the `device`, allocations, and what else the file says,
    `about`.

    All are of one process group's rank. A trace of several is to have a column of ranks in both; threads and devices
    of another rank are lanes and devices like others.
    """

    host: HostEvents
    device: DeviceEvents
    memory: MemoryEvents
    about: About


def read_events(path: Path, wanted: Callable[[str], bool]) -> Events:
    """The events of the trace at `path`; `wanted` says by name which operators' arguments are kept.

    Raises `InputError` for a file that cannot be read, is damaged or is not a trace.
    """
    events, remark = read_text(path, lambda text: _read(path, text, wanted))
    events.about.remarks += [remark] if remark else []
    return events


def _read(path: Path, text: Iterable[bytes], wanted: Callable[[str], bool]) -> Events:
    about = About()
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
    return Events(host, device, memory, about)


def _foreign(path: Path, about: About) -> InputError:
    """The refusal of a list of events in which torch.profiler wrote none."""
    if about.lost == about.events:
        return InputError(f"{path} is JSON, but not a torch.profiler trace: its list holds no events.", RECORD)
    return InputError(
        f"{path} is a Chrome trace of another tool: torch.profiler wrote none of its {about.events} events.",
        f"Open it in ui.perfetto.dev. {RECORD}",
    )
