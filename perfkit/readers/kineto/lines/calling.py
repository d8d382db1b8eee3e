"""The lines that call compiled code: those of what runs in it, where its compiler notes none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.numbers import unique
from perfkit.profile_names import GRAPH_RUNS
from perfkit.readers.kineto.attribution.modules import forward_of
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.lines.join import Lined, Traced

_REGION = "Torch-Compiled Region"  # around what Dynamo made of a function; where no runs of graphs are marked


def with_calling(trace: Traced, lined: Lined) -> Lined:
    """`lined`, but compiled work has the line that calls the compiled code, marked as such: of the backward pass the
    one that called it in the forward pass."""
    calling = _calling(trace, lined.caller)
    number = {frame: i for i, frame in enumerate(lined.frames)}
    frame = lined.frame.copy()
    for one in unique(calling[calling >= 0]).tolist():
        known = lined.frames[one]
        doubtful = known._replace(exact=False, compiled=known.exact)
        frame[calling == one] = number.setdefault(doubtful, len(number))
    return replace(lined, frames=list(number), frame=frame)


def _calling(trace: Traced, caller: Integers) -> Integers:
    """The frame that calls the compiled code that each event runs in, −1 for none."""
    places = trace.places
    found = np.full(len(trace.host), -1, np.int64)
    inside = np.flatnonzero(_in_compiled(trace.host))
    if not len(inside):
        return found
    forward = forward_of(trace.host, places.node, places.wrapper)[inside]
    found[inside] = np.where(places.node[inside] < 0, caller[inside], -1)
    for event in unique(forward[forward >= 0]).tolist():
        found[inside[forward == event]] = caller[_first_call(trace, event)]
    return found


def _in_compiled(host: HostEvents) -> Booleans:
    """Return which events run in compiled code."""
    for prefix in (GRAPH_RUNS, _REGION):
        runs = host.named([name.startswith(prefix) for name in host.names])
        if runs.any():
            inside: Booleans = host.nearest(runs) >= 0
            return inside
    return np.zeros(len(host), bool)


def _first_call(trace: Traced, event: int) -> int:
    """The first call inside an event, else the event itself."""
    calls = np.flatnonzero(trace.calls[event:])
    first = event + int(calls[0]) if len(calls) else event
    inside = trace.host.lane[first] == trace.host.lane[event] and trace.host.start[first] < trace.host.end[event]
    return first if inside else event
