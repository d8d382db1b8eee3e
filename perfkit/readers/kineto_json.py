"""The JSON of a torch.profiler trace, decoded into typed events.

A typed decode that keeps only the fields a kernel table needs is several times faster than `json.loads`. Shapes stay
raw text: the same text comes back thousands of times, and only its first occurrence has to be parsed.
"""

from __future__ import annotations

import gc
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from perfkit.errors import InputError

AGAIN = "Capture it again."
_GZIP = b"\x1f\x8b"
_RAW_NAMES = {
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "dims": "Input Dims",
    "types": "Input type",
    "strides": "Input Strides",
    "concrete": "Concrete Inputs",
    "registers": "registers per thread",
    "shared_memory": "shared memory",
    "occupancy": "est. achieved occupancy %",
    "waves": "warps per SM",
}
_NOTHING = msgspec.Raw(b"")


class Args(msgspec.Struct, gc=False, frozen=True, rename=_RAW_NAMES):
    """The arguments of an event that perfkit reads; everything else is skipped while decoding."""

    sequence: int = -1
    forward_thread: int = -1
    dims: msgspec.Raw = _NOTHING
    types: msgspec.Raw = _NOTHING
    strides: msgspec.Raw = _NOTHING
    concrete: msgspec.Raw = _NOTHING
    correlation: int = -1
    stream: int | str | None = None
    device: int | str | None = None
    grid: list[int] | str | None = None
    block: list[int] | str | None = None
    registers: int | float | None = None
    shared_memory: int | float | None = None
    occupancy: int | float | None = None


class Event(msgspec.Struct, gc=False, frozen=True):
    """One trace event; `ts` and `dur` in µs with fractions."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: Args = Args()


class Trace(msgspec.Struct, frozen=True):
    """A whole trace file."""

    traceEvents: list[Event]
    deviceProperties: list[dict[str, Any]] = []


def read_bytes(path: Path) -> bytes:
    """The file's content, decompressed when it is gzip. Raises `InputError` for a file that cannot be read."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == _GZIP else data
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.", "Give the path of a run folder or profile.") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is damaged: its compressed content is broken or cut off.", AGAIN) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error


def decode(data: bytes, path: Path) -> tuple[Trace, list[str]]:
    """The events in `data`, and warnings about any that could not be read. Raises `InputError` when it is no trace."""
    bare = data.lstrip()[:1] == b"["
    with _collector_off():
        try:
            return _typed(data, bare) or _leniently(data, path)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"{path} is not a torch.profiler trace, or it is damaged: {error}.", AGAIN) from error


def _typed(data: bytes, bare: bool) -> tuple[Trace, list[str]] | None:
    """The events, all at once; None when a field has an unexpected type."""
    try:
        if bare:
            return Trace(msgspec.json.decode(data, type=list[Event])), []
        return msgspec.json.decode(data, type=Trace), []
    except msgspec.ValidationError:
        return None


def _leniently(data: bytes, path: Path) -> tuple[Trace, list[str]]:
    """Decode event by event and leave out those with fields of an unexpected type."""
    whole = msgspec.json.decode(data)
    found = whole.get("traceEvents") if isinstance(whole, dict) else whole
    if not isinstance(found, list):
        raise InputError(f"{path} is JSON, but not a torch.profiler trace: it has no list of events.")
    events: list[Event] = []
    lost = 0
    for item in found:
        try:
            events.append(msgspec.json.decode(msgspec.json.encode(item), type=Event, strict=False))
        except msgspec.ValidationError:
            lost += 1
    return Trace(events), [f"{lost} of {len(found)} events in the trace could not be read"] if lost else []


@contextmanager
def _collector_off() -> Iterator[None]:
    """Decoding makes only objects that live on; the garbage collector would search them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
