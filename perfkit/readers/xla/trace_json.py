"""`*.trace.json.gz` of XLA's profiler: the same lines in a Chrome trace, at most a million events, no modules."""

from __future__ import annotations

import json
from typing import Any

from perfkit.readers.xla.profile import Event, XlaLine, XlaProfile
from perfkit.readers.xla.wire import Damaged

_PYTHON = "$"
MOST_EVENTS = 1_000_000


def read_trace_json(data: bytes) -> XlaProfile:
    """Read the content of a trace. Raises `Damaged` for any other."""
    try:
        document = json.loads(data)
        events = document["traceEvents"] if isinstance(document, dict) else document
        return _profile(events)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Damaged("it is cut off, or not as XLA's profiler writes it") from error


def _profile(events: list[dict[str, Any]]) -> XlaProfile:
    planes: dict[Any, str] = {}
    threads: dict[tuple[Any, Any], str] = {}
    lines: dict[tuple[Any, Any], list[Event]] = {}
    for event in events:
        key = (event.get("pid"), event.get("tid"))
        if event.get("ph") == "M":
            said = event.get("args", {}).get("name")
            if event["name"] == "process_name":
                planes[key[0]] = str(said)
            elif event["name"] == "thread_name":
                threads[key] = str(said)
        elif event.get("ph") == "X" and not event["name"].startswith(_PYTHON):
            start = round(event["ts"] * 1000)
            stats = dict(event.get("args", {}))
            lines.setdefault(key, []).append(
                Event(event["name"], start, start + round(event.get("dur", 0) * 1000), stats)
            )
    found = XlaProfile([XlaLine(planes.get(key[0], ""), threads.get(key, ""), mine) for key, mine in lines.items()])
    found.planes = {name: {} for name in planes.values()}
    if len(events) >= MOST_EVENTS:
        found.notes.append(f"the trace has {len(events)} events, at which XLA's profiler may have cut it")
    return found
