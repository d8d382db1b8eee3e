"""The pass of each host event.

It comes from perfkit's ranges around the event, or on another thread from what the thread of the steps was in. Without
these ranges: inside an autograd node backward, in the optimizer's annotation optimizer, numbered operators forward; and
what lies in a range that is called forward, backward or optimizer. Thunder runs a model's operators without numbers and
then connects what they gave to autograd: what it ran before that, since anything else that has a pass, is forward.
"""

from __future__ import annotations

import numpy as np

from perfkit.engines import IDLE, PHASES, iteration_of
from perfkit.profile_names import BACKWARD, FORWARD, LOADER, OPTIMIZER, PASS, pass_of
from perfkit.readers.columns import Integers
from perfkit.readers.intervals import Steps
from perfkit.readers.kineto.decode.events import ANNOTATION, OPERATOR, RUNTIME, HostEvents

_THUNDER = "ThunderFunction"  # the operator by which Thunder connects a forward pass to autograd
_PASSES = [FORWARD, BACKWARD, OPTIMIZER]


def passes(events: HostEvents, steps: Steps, node: Integers) -> tuple[list[str], Integers]:
    """Pass of each event: from its own ranges, else (another thread) from what the step's thread was in at the time."""
    names, code = _codes(events, PASS)
    ranges = np.flatnonzero(events.named([n.startswith(PASS) for n in events.names]) & (events.lane == steps.lane))
    if len(ranges):
        spans = Steps(events.start[ranges], events.end[ranges], steps.lane, True)
        at = spans.at(events.start)
        code = np.where((code < 0) & (at >= 0), code[ranges[np.maximum(at, 0)]], code)
        return names, code
    return _passes_without_ranges(events, steps, node)


def _passes_without_ranges(events: HostEvents, steps: Steps, node: Integers) -> tuple[list[str], Integers]:
    """Pass by autograd's own marks and the optimizer's annotation; else by the name of a range around the event.

    In an iteration of a serving engine it is the iteration's phase.
    """
    served = [iteration_of(name) for name in steps.names]
    if any(served):
        phase = np.array([PHASES.index(one.phase if one else IDLE) for one in served])
        at = steps.at(events.start)
        return list(PHASES), np.where(at >= 0, phase[np.maximum(at, 0)], -1)
    own = np.where(events.sequence >= 0, np.int32(0), np.int32(-1))
    own[events.named([n.startswith("Optimizer.") for n in events.names])] = 2
    code = events.inherit(own)
    known: list[str | None] = [*_PASSES]
    words = np.array([known.index(word) if (word := pass_of(n)) in known else -1 for n in events.names], dtype=np.int64)
    said = np.where(events.category == ANNOTATION, words[events.name], -1) if len(events) else code
    code = np.where(code < 0, events.inherit(said), code)
    code = np.where(node >= 0, 1, code)
    for call in np.flatnonzero(events.named([n == _THUNDER for n in events.names]) & (events.sequence >= 0)).tolist():
        code[_before(events, steps, code, call)] = 0
    return _PASSES, code


def _before(events: HostEvents, steps: Steps, code: Integers, call: int) -> Integers:
    """The events without a pass on the thread of `call` that ran before it, in its step, since any with a pass or a
    batch was fetched."""
    mine = np.arange(np.searchsorted(events.lane, events.lane[call]), call)
    loading = events.named([n.startswith(LOADER) for n in events.names])[mine]
    since = events.end[mine[(code[mine] >= 0) | loading]].max(initial=-1)
    at = int(steps.at(events.start[call : call + 1])[0])
    if at >= 0:
        since = max(int(since), int(steps.start[at]))
    chosen = (events.start[mine] >= since) & (code[mine] < 0) & np.isin(events.category[mine], (OPERATOR, RUNTIME))
    return mine[chosen]


def _codes(events: HostEvents, prefix: str) -> tuple[list[str], Integers]:
    """The words behind `prefix` in ranges, and for each event the code of the innermost such range around it or −1."""
    words = sorted({n.removeprefix(prefix) for n in events.names if n.startswith(prefix)})
    code = {prefix + word: i for i, word in enumerate(words)}
    own = np.array([code.get(n, -1) for n in events.names], dtype=np.int64)
    return words, events.inherit(own[events.name]) if len(events) else np.empty(0, np.int64)
