"""Chrome traces of Proton's intra-kernel mode: the scopes of a Triton kernel, as regions like those of profile.cuh.

Proton writes an event a scope and warp. A scope's length is in cycles, which Proton takes for nanoseconds ("Frequency
(MHz)": 1000); when a block begins is on the GPU's timer, in nanoseconds. The events of a launch follow each other,
block by block and warp by warp: where a warp comes again, the next launch of its kernel begins.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.errors import InputError
from perfkit.instructions.regions import CYCLES, NS, LongestLaunch, Records, launch_of

_PLACE = re.compile(r"(.*) Core(\d+) CTA(\d+)")
_WARP = re.compile(r"warp (\d+)")
_SIGN = re.compile(rb'"pid":\s*"[^"]* Core\d+ CTA\d+"')
_LOOKED = 1 << 16  # bytes at the begin of a file
_AS_NS = 1000.0  # MHz at which a cycle is a nanosecond: Proton knows no other
_Event = tuple[str, str, int, int, int, float, float]  # kernel, scope, multiprocessor, block, warp, begin and end


def is_proton(path: Path) -> bool:
    """Return whether a file is a trace of scopes inside kernels."""
    with path.open("rb") as file:
        head = file.read(_LOOKED)
    if head[:2] == b"\x1f\x8b":
        try:
            with gzip.open(path) as file:
                head = file.read(_LOOKED)
        except (OSError, EOFError):
            return False
    return head.lstrip()[:1] == b"{" and _SIGN.search(head) is not None


def read(path: Path) -> tuple[LongestLaunch, Records]:
    """Return the launch with the longest scopes and its records. Raises `InputError` for a damaged trace."""
    raw = path.read_bytes()
    try:
        document = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        events = [event for one in document["traceEvents"] if (event := _event(one))]
        as_ns = {float(one["args"]["Frequency (MHz)"]) for one in document["traceEvents"] if _place(one)} == {_AS_NS}
        finite = np.isfinite([event[5:] for event in events]).all() and all(e[6] >= e[5] for e in events)
    except (OSError, EOFError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise _damaged(path) from error
    if not events or not finite:
        raise _damaged(path)
    launches = list(_launches(events))
    longest = max(launches, key=lambda launch: max(end - begin for *_, begin, end in launch))
    kernel, records = longest[0][0], _records(longest)
    count = sum(launch[0][0] == kernel for launch in launches)
    return launch_of(records, count, 0, 0, kernel=kernel, unit=CYCLES if as_ns else NS), records


def _damaged(path: Path) -> InputError:
    return InputError(f"{path} is damaged: it is not as Proton writes it.", "Record it again.")


def _place(one: dict[str, Any]) -> re.Match[str] | None:
    """Kernel, multiprocessor and block of an event; None of others than scopes in kernels."""
    return _PLACE.fullmatch(str(one.get("pid"))) if one.get("ph") == "X" else None


def _event(one: dict[str, Any]) -> _Event | None:
    place, warp = _place(one), _WARP.match(str(one.get("tid")))
    if place is None or warp is None:
        return None
    begin = float(one["ts"]) * 1e3
    kernel, multiprocessor, block = place.groups()
    numbers = int(multiprocessor), int(block), int(warp[1])
    if max(numbers) >= 1 << 31:
        raise ValueError("no number of a block")
    return kernel, str(one["name"]), *numbers, begin, begin + float(one["dur"]) * 1e3


def _launches(events: list[_Event]) -> Iterator[list[_Event]]:
    """The events of each launch."""
    launch: list[_Event] = []
    seen: set[tuple[int, int]] = set()
    before: tuple[str, int, int, int] | None = None
    for event in events:
        kernel, _, multiprocessor, block, warp = event[:5]
        now = (kernel, multiprocessor, block, warp)
        if now != before and launch and (kernel != launch[0][0] or (block, warp) in seen):
            yield launch
            launch, seen = [], set()
        launch.append(event)
        seen.add((block, warp))
        before = now
    if launch:
        yield launch


def _records(launch: list[_Event]) -> Records:
    _, name, sm, block, warp, begin, end = (np.array(column) for column in zip(*launch, strict=True))
    first = begin.min()
    return Records(
        name=name, sm=sm, block=block, warp=warp, begin_ns=begin - first, end_ns=end - first, tick_ns=float("nan")
    )
