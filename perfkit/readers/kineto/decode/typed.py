"""The JSON of a torch.profiler trace, decoded into typed events.

A typed decode that keeps only the fields a kernel table needs is several times faster than `json.loads`. Shapes and
grids stay raw text: the same text comes back thousands of times, and only its first occurrence has to be parsed.
"""

from __future__ import annotations

import functools
import gc
import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import msgspec

from perfkit.readers.kineto.decode.categories import ArrowCategory, Category, InstantCategory
from perfkit.readers.kineto.decode.pieces import Pieces

_RAW_NAMES = {
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "dims": "Input Dims",
    "types": "Input type",
    "strides": "Input Strides",
    "concrete": "Concrete Inputs",
    "hierarchy": "Module Hierarchy",
    "stack": "Call stack",
    "registers": "registers per thread",
    "shared_memory": "shared memory",
    "occupancy": "est. achieved occupancy %",
    "collective": "Collective name",
    "elements_in": "In msg nelems",
    "elements_out": "Out msg nelems",
    "group_size": "Group size",
    "group": "Process Group Name",
    "group_text": "Process Group Description",
    "group_ranks": "Process Group Ranks",
}
MEMORY = "[memory]"  # the name of an instant
NOTHING = cast(msgspec.Raw, b"")  # a `bytes` of its own kind is joined faster than a `Raw`

# Whole numbers beyond these are damage: numpy and the table hold 64 bits.
Whole = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class Args(msgspec.Struct, gc=False, frozen=True, rename=_RAW_NAMES):
    """The arguments of an event that perfkit reads; everything else is skipped while decoding."""

    # In the order in which they come in files, for so a field is found at once.
    concrete: msgspec.Raw = NOTHING
    dims: msgspec.Raw = NOTHING
    types: msgspec.Raw = NOTHING
    strides: msgspec.Raw = NOTHING
    forward_thread: Whole = -1
    sequence: Whole = -1
    hierarchy: str = ""
    stack: str = ""
    device: Whole | str | None = None
    stream: Whole | str | None = None
    correlation: Whole = -1
    registers: msgspec.Raw = NOTHING
    shared_memory: msgspec.Raw = NOTHING
    grid: msgspec.Raw = NOTHING
    block: msgspec.Raw = NOTHING
    occupancy: msgspec.Raw = NOTHING
    bytes: int | float | None = None  # of a copy; perfkit's own traces give it for kernels too, as a real number
    size: Whole | str | None = None  # of a copy, on AMD's launching call, as text
    collective: str | None = None
    elements_in: Whole | None = None
    elements_out: Whole | None = None
    dtype: str | None = None
    group: str | None = None
    group_text: str | None = None
    group_ranks: str | None = None
    group_size: Whole | None = None


NO_ARGS = Args()


class Complete(msgspec.Struct, gc=False, frozen=True, tag_field="ph", tag="X"):
    """An event that lasts; `ts` and `dur` in µs with fractions."""

    cat: Category = Category.OTHER
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: Args = NO_ARGS


class FlowStart(msgspec.Struct, gc=False, frozen=True, tag_field="ph", tag="s"):
    """The beginning of an arrow: at a launch, or at a forward operator (category `fwdbwd`)."""

    id: Whole | str = -1
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    cat: ArrowCategory = ArrowCategory.OTHER


class FlowEnd(msgspec.Struct, gc=False, frozen=True, tag_field="ph", tag="f"):
    """The end of an arrow: at GPU work, or at an autograd node (category `fwdbwd`)."""

    id: Whole | str = -1
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    cat: ArrowCategory = ArrowCategory.OTHER


class MemoryArgs(msgspec.Struct, gc=False, frozen=True, rename={
    "allocated": "Total Allocated", "reserved": "Total Reserved", "bytes": "Bytes", "device": "Device Type",
    "index": "Device Id", "address": "Addr",
}):  # fmt: skip
    """PyTorch's record of an allocation or release: the bytes that the allocator holds from then on."""

    allocated: float | None = None
    reserved: float | None = None
    bytes: float | None = None
    device: int | None = None
    index: int | None = None
    address: float | None = None


class Instant(msgspec.Struct, gc=False, frozen=True, tag_field="ph", tag="i"):
    """A moment; of those only allocations and releases, called `MEMORY`, are read."""

    cat: ClassVar[InstantCategory] = InstantCategory.ANY
    name: str = ""
    tid: int | str = 0
    ts: float = 0.0
    args: MemoryArgs = MemoryArgs()


class Counter(msgspec.Struct, gc=False, frozen=True, tag_field="ph", tag="C"):
    """Values of counters from a moment on, by name; `pid` may be that of a device."""

    cat: ClassVar[Category] = Category.OTHER
    name: str = ""
    pid: int | str = 0
    ts: float = 0.0
    args: dict[str, Any] = {}


class _PassedOver(msgspec.Struct):
    """Names of threads, begin and end pairs, …: nothing in them is read."""

    cat: ClassVar[Category] = Category.OTHER


_OTHERS = tuple(
    msgspec.defstruct(f"Phase_{phase}", [], bases=(_PassedOver,), tag_field="ph", tag=phase, gc=False)
    for phase in "MIBEbentPNODRcvV()"
)
Event = Complete | FlowStart | FlowEnd | Instant | Counter
_Any: Any = functools.reduce(operator.or_, _OTHERS, Event)


class _Top(msgspec.Struct, frozen=True):
    """The statements of a trace about itself before and after its events."""

    schemaVersion: Any = None
    deviceProperties: list[dict[str, Any]] = []
    distributedInfo: Any = None
    baseTimeNanoseconds: Any = 0
    perfkit_held: Any = None


_events = msgspec.json.Decoder(list[_Any])
_one = msgspec.json.Decoder(_Any, strict=False)


@dataclass
class DecodingFacts:
    """Facts found while decoding: how many there were and could not be read, the devices, the trace's record of its
    process group (`distributed`), perfkit's notes of what a program held (`held`), when its first event began, in ns of
    the host's clock and as the file counts (`first_ns`), `remarks` (sentences about the file), `unread` (how many
    events have a category that nothing reads), and whether the text around the events is as torch.profiler writes
    it."""

    events: int = 0
    lost: int = 0
    devices: list[dict[str, Any]] = field(default_factory=list)
    distributed: dict[str, Any] = field(default_factory=dict)
    held: Any = None
    origin_ns: int = 0
    first_ns: int = 0
    remarks: list[str] = field(default_factory=list)
    unread: dict[str, int] = field(default_factory=dict)
    of_torch: bool = False

    def warnings(self) -> list[str]:
        """Sentences about the file, and one about events that could not be read, if there are any."""
        lost = [f"{self.lost} of {self.events} events in the trace could not be read"] if self.lost else []
        unread = [
            f'{count:,} of {self.events:,} events in the trace have the category "{ascii(word)[1:-1]}", which perfkit '
            "does not read: their work and time are in no figure"
            for word, count in self.unread.items()
        ]
        return [*self.remarks, *lost, *unread]


def decode(path: Path, found: DecodingFacts, text: Iterable[bytes]) -> Iterator[list[Event]]:
    """The events of the trace at `path`, whose `text` comes in blocks, in lists, and into `found` what else it says.

    A list is to be used before the next one is asked for. Raises `InputError` when the file cannot be read, is damaged
    or is not a trace; then nothing that came before counts.
    """
    pieces = Pieces(path, text)
    yield from pieces.decoded(functools.partial(_list, found=found))
    top = _top(pieces.around)
    found.devices, found.origin_ns = top.deviceProperties, _base(top)
    found.of_torch = top.schemaVersion is not None or bool(top.deviceProperties)
    found.distributed = top.distributedInfo if isinstance(top.distributedInfo, dict) else {}
    found.held = top.perfkit_held


def _top(text: bytes) -> _Top:
    try:
        return msgspec.json.decode(text, type=_Top)
    except msgspec.ValidationError:
        return _Top()


def _base(top: _Top) -> int:
    """The moment in ns that the times of the events count from."""
    base = top.baseTimeNanoseconds
    return base if type(base) is int and 0 <= base < 2**62 else 0


def _list(text: memoryview, found: DecodingFacts) -> list[Event]:
    try:
        events: list[Event] = _events.decode(text)
    except msgspec.ValidationError:
        return _leniently(msgspec.json.decode(text, type=list[msgspec.Raw]), found, text)
    found.events += len(events)
    return events


def _leniently(items: Iterable[msgspec.Raw], found: DecodingFacts, text: memoryview) -> list[Event]:
    """Decode event by event; those with fields of an unexpected type are counted and left out."""
    str(text, "utf-8")  # other than UTF-8 is damage, also where nobody looks
    events: list[Event] = []
    for item in items:
        found.events += 1
        try:
            events.append(_one.decode(item))
        except msgspec.ValidationError:
            found.lost += 1
    return events


@contextmanager
def collector_off() -> Iterator[None]:
    """Reading makes no cycles, and objects by the hundred thousand: the garbage collector would search them in vain.

    Those that stay count as old afterwards, as if it had: else it would do so at the next occasion.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if was_on:
            gc.enable()
