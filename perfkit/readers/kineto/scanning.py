"""The events of a piece as columns by `scan.c`, where a C compiler has built it: no object is made of an event.

It is a shorter way to what `decoding` and `collect` give, never another result: what it does not take it leaves to them
(docs/decisions/0014-a-scanner-in-c-beside-the-decoder.md).
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.errors import PerfkitError
from perfkit.hardware.compiler import build_library
from perfkit.readers.kineto.coding import SEPARATOR
from perfkit.readers.kineto.events import Integers

SOURCE = Path(__file__).with_name("scan.c")
WORTH = 1 << 20  # bytes of a file: for smaller ones the decoder takes less time than a compiler does, once
_SHORTEST = 16  # bytes of an event, and more: no more events are scanned of a piece than this allows
_LANES = 256  # of a piece
_AFTER = b"\1"  # each row of slices that are joined; no JSON holds it
_LARGEST = 1 << 23  # bytes of a piece: a larger one is no usual trace, and the memory below grows with it

RECORDED, SHAPE = 4, 5  # texts of an operator's recorded arguments, and of a kernel's launch
_HOST = {
    "category": np.int8, "name": np.int32, "lane": np.int32, "sequence": np.int64, "forward_thread": np.int64,
    "correlation": np.int64, "start": np.float64, "length": np.float64,
}  # fmt: skip
_DEVICE = {
    "kind": np.int8, "device_name": np.int32, "device": np.int32, "stream": np.int32, "launched_by": np.int64,
    "amount": np.int64, "device_start": np.float64, "device_length": np.float64,
}  # fmt: skip
_ARROWS = {"arrow_start": np.float64, "arrow_lane": np.int32, "arrow_id": np.int64, "begins": np.int8}


class _Names(ctypes.Structure):
    _fields_ = (
        ("slots", ctypes.c_void_p),
        ("taken", ctypes.c_void_p),
        ("mask", ctypes.c_int64),
        ("texts", ctypes.c_void_p),
        ("count", ctypes.c_int64),
    )


class _Lanes(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_void_p), ("tid", ctypes.c_void_p), ("room", ctypes.c_int64), ("count", ctypes.c_int64))


class _Columns(ctypes.Structure):
    """`Columns` of scan.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("room", "events", "hosts", "devices", "arrows")),
        *((name, _Names) for name in ("names", "device_names")),
        *((name, _Lanes) for name in ("lanes", "arrow_lanes")),
        *((name, ctypes.c_void_p) for name in (*_HOST, "recorded", *_DEVICE, "shape", *_ARROWS)),
    )


class Scanned:
    """The events of a piece, in three groups of columns; valid until the next piece is scanned.

    `host`, `device` and `arrows` hold a column by name. A `name`, `device_name`, `lane` and `arrow_lane` is a place in
    the list that the method of that name gives.
    """

    def __init__(self, scanner: Scanner, text: memoryview, found: _Columns) -> None:
        self._scanner, self._text, self._found = scanner, text, found
        self.events: int = found.events
        columns = scanner.columns
        self.host = {name: columns[name][: found.hosts] for name in _HOST}
        self.device = {name: columns[name][: found.devices] for name in _DEVICE}
        self.arrows = {name: columns[name][: found.arrows] for name in _ARROWS}

    def names(self) -> list[str]:
        """The names of host events in the order in which they first came."""
        return self._texts("names.texts", self._found.names.count)

    def device_names(self) -> list[str]:
        """The names of device events."""
        return self._texts("device_names.texts", self._found.device_names.count)

    def lanes(self) -> list[tuple[int, int]]:
        """Process and thread of host events."""
        return self._lanes("lanes", self._found.lanes.count)

    def arrow_lanes(self) -> list[tuple[int, int]]:
        """Process and thread of arrows."""
        return self._lanes("arrow_lanes", self._found.arrow_lanes.count)

    def recorded(self, name: Integers, chosen: Integers) -> tuple[list[tuple[int, bytes]], Integers]:
        """The distinct recorded arguments, each with the name that it came with, of the `chosen` host events, and for
        each of these which of them it has."""
        rows = self._scanner.columns["recorded"].reshape(-1, RECORDED, 2)[chosen]
        names = np.ascontiguousarray(name[chosen], np.int32)
        texts, first, code = self._scanner.distinct(self._text, rows, names)
        return list(zip(names[first].tolist(), texts, strict=True)), code

    def shapes(self) -> tuple[list[bytes], Integers]:
        """The distinct shapes of launches, and for each device event which of them it has."""
        rows = self._scanner.columns["shape"].reshape(-1, SHAPE, 2)[: self._found.devices]
        texts, _, code = self._scanner.distinct(self._text, rows, None)
        return texts, code

    def _texts(self, which: str, count: int) -> list[str]:
        text, slices = self._text, self._scanner.columns[which].reshape(-1, 2)[:count].tolist()
        return [str(text[at : at + size], "ascii") for at, size in slices]

    def _lanes(self, which: str, count: int) -> list[tuple[int, int]]:
        pid, tid = (self._scanner.columns[f"{which}.{part}"][:count].tolist() for part in ("pid", "tid"))
        return list(zip(pid, tid, strict=True))


class Scanner:
    """The library and the memory that it writes to, one piece after the other."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for function in (library.perfkit_scan, library.perfkit_distinct, library.perfkit_joined):
            function.restype = ctypes.c_int64
        self._found = _Columns()
        self.columns: dict[str, Integers] = {}
        self._scratch: dict[str, Integers] = {}

    def scan(self, text: memoryview) -> Scanned | None:
        """The events of `text`, a list behind which a zero and `stream.BEHIND` bytes stand in the same memory; None
        where the decoder must look at it."""
        if len(text) > _LARGEST:
            return None
        self._make_room(len(text) // _SHORTEST)
        begin = np.frombuffer(text, np.uint8).ctypes.data
        if self._library.perfkit_scan(ctypes.c_void_p(begin), ctypes.byref(self._found)) < 0:
            return None
        return Scanned(self, text, self._found)

    def distinct(
        self, text: memoryview, rows: Integers, names: Integers | None
    ) -> tuple[list[bytes], Integers, Integers]:
        """Of rows of slices [N, wide, 2] the distinct ones as texts, where each first came, and for each row which of
        them it is. `names` [N] tell rows apart too."""
        rows = np.ascontiguousarray(rows)
        (count, wide), begin = rows.shape[:2], ctypes.c_void_p(np.frombuffer(text, np.uint8).ctypes.data)
        code, first = np.empty(count, np.int32), np.empty(count, np.int32)
        scratch, library = self._scratch, self._library
        found = library.perfkit_distinct(
            begin, _pointer(rows), ctypes.c_int64(count), ctypes.c_int64(wide),
            ctypes.c_void_p(None) if names is None else _pointer(names), _pointer(scratch["slots"]),
            _pointer(scratch["taken"]), ctypes.c_int64(len(scratch["slots"]) - 1), _pointer(code), _pointer(first),
        )  # fmt: skip
        joined = scratch["joined"]
        size = library.perfkit_joined(
            begin, _pointer(rows), ctypes.c_int64(wide), _pointer(first), ctypes.c_int64(found),
            ctypes.c_int(SEPARATOR[0]), ctypes.c_int(_AFTER[0]), _pointer(joined),
        )  # fmt: skip
        return bytes(joined.data[:size]).split(_AFTER)[:-1], first[:found], code

    def _make_room(self, events: int) -> None:
        """Memory for that many events, all of it kept for the pieces that follow."""
        if events <= self._found.room:
            return
        slots = 1 << (2 * events).bit_length()
        sizes: dict[str, tuple[int, Any]] = {name: (events, kind) for name, kind in (_HOST | _DEVICE | _ARROWS).items()}
        sizes |= {"recorded": (2 * RECORDED * events, np.int32), "shape": (2 * SHAPE * events, np.int32)}
        for table in ("names", "device_names"):
            sizes |= {f"{table}.taken": (events, np.int32), f"{table}.texts": (2 * events, np.int32)}
        for lanes in ("lanes", "arrow_lanes"):
            sizes |= {f"{lanes}.pid": (_LANES, np.int64), f"{lanes}.tid": (_LANES, np.int64)}
        self.columns = {name: np.empty(size, kind) for name, (size, kind) in sizes.items()}
        self.columns |= {f"{table}.slots": np.full(slots, -1, np.int32) for table in ("names", "device_names")}
        self._scratch = {
            "slots": np.full(slots, -1, np.int32),
            "taken": np.empty(events, np.int32),
            # All the text of a piece, and what stands between.
            "joined": np.empty(_SHORTEST * (events + 1) + max(RECORDED, SHAPE) * events, np.uint8),
        }
        found = self._found = _Columns(room=events)
        found.names.mask = found.device_names.mask = slots - 1
        found.lanes.room = found.arrow_lanes.room = _LANES
        for name, column in self.columns.items():
            *owner, own = name.split(".")
            setattr(getattr(found, owner[0]) if owner else found, own, column.ctypes.data)


def _pointer(column: Integers) -> ctypes.c_void_p:
    return ctypes.c_void_p(column.ctypes.data)


def scanner_for(path: Path) -> Scanner | None:
    """A scanner for the file at `path`, None where it is small or there is no compiler."""
    try:
        library = _library() if path.stat().st_size >= WORTH else None
    except OSError:
        return None
    return Scanner(library) if library else None


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    """The compiled scanner; None without a compiler, or where the cache's files may not be executed."""
    try:
        return ctypes.CDLL(str(build_library(SOURCE)))
    except (PerfkitError, OSError):
        return None
