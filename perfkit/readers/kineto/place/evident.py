"""Steps of a trace that marks none, where the program's own ranges show them: in each step a batch is fetched, and an
optimizer steps.

1. A range of one name that is open around the same number of optimizer steps each time, and around all of them.
2. From one call of a DataLoader to the next, where each is followed by the same number of optimizer steps. Batches
   without any, as those of an evaluation have, are no steps.
3. The same number of calls of a DataLoader, several, before each optimizer step (gradients are accumulated).
4. From one optimizer step to the next, without a DataLoader; from one call of the DataLoader to the next, without an
   optimizer.
"""

from __future__ import annotations

import re

import numpy as np

from perfkit.profile_names import LOADER, OPTIMIZER_STEP
from perfkit.readers.columns import Booleans, Integers
from perfkit.readers.intervals import Steps
from perfkit.readers.kineto.decode.events import ANNOTATION, OPERATOR, PYTHON, RUNTIME, HostEvents

_NEXT_BATCH = re.compile(re.escape(LOADER) + r"#.*__next__$")
_NUMBER = re.compile(r"\d+")
_FEWEST = 2


def evident_steps(host: HostEvents) -> Steps | None:
    """The steps that the ranges show; None where they show none."""
    ranges = host.category == ANNOTATION
    optimizer = _outermost(host, ranges & host.named([n.startswith(OPTIMIZER_STEP) for n in host.names]))
    loader = _outermost(host, ranges & host.named([bool(_NEXT_BATCH.match(n)) for n in host.names]))
    either = optimizer if len(optimizer) else loader
    if len(either) < _FEWEST:
        return None
    lane = int(np.bincount(host.lane[either]).argmax())
    optimizer, loader = (found[host.lane[found] == lane] for found in (optimizer, loader))
    return _around(host, lane, optimizer) or _between(host, lane, optimizer, loader)


def _outermost(host: HostEvents, chosen: Booleans) -> Integers:
    """The `chosen` events that lie in none of them."""
    around = np.where(host.parent >= 0, host.nearest(chosen)[host.parent], -1) if len(host) else host.parent
    return np.flatnonzero(chosen & (around < 0))


def _around(host: HostEvents, lane: int, optimizer: Integers) -> Steps | None:
    """Ranges of one name around the same number of optimizer steps each."""
    if len(optimizer) < _FEWEST:
        return None
    kinds: dict[str, list[int]] = {}
    around = {int(p) for event in optimizer.tolist() for p in _parents(host, event)}
    for event in sorted(around):
        if host.category[event] == ANNOTATION:
            kinds.setdefault(_NUMBER.sub("#", host.names[host.name[event]]), []).append(event)
    for kind, events in kinds.items():
        start, end = host.start[events], host.end[events]
        held = np.searchsorted(host.start[optimizer], end) - np.searchsorted(host.start[optimizer], start)
        if len(events) >= _FEWEST and held.min() == held.max() and held.sum() == len(optimizer):
            shown = host.names[host.name[events[0]]] if kind.count("#") == 0 else kind
            return _steps(start, end, lane, f"ranges {shown}, each around {_times(int(held[0]))}")
    return None


def _parents(host: HostEvents, event: int) -> list[int]:
    found, event = [], int(host.parent[event])
    while event >= 0:
        found.append(event)
        event = int(host.parent[event])
    return found


def _between(host: HostEvents, lane: int, optimizer: Integers, loader: Integers) -> Steps | None:
    """Steps from one call to the next."""
    stepped, fetched = host.start[optimizer], host.start[loader]
    last = int(host.end[(host.lane == lane) & (host.category != PYTHON)].max())
    if not len(fetched):
        first = int(host.start[(host.lane == lane) & (host.category != PYTHON)].min())
        done = host.end[optimizer]
        return _steps(np.append(first, done[:-1]), done, lane, "they go from one optimizer step to the next")
    following = np.searchsorted(stepped, np.append(fetched, last + 1))
    count = np.diff(following)  # optimizer steps from each call of the loader to the next
    if not len(stepped):
        works = _works(host, lane, fetched, last)
        begin = fetched if works[-1] else fetched[:-1]
        told = "they go from one call of the DataLoader to the next"
        return _steps(begin, _ends(begin, np.append(fetched[1:], last)), lane, told) if works[:-1].all() else None
    before = np.diff(np.searchsorted(fetched, stepped))  # calls of the loader between optimizer steps
    if len(before) and before.min() == before.max() and before[0] > 1:
        return _accumulated(lane, stepped, host.end[optimizer], fetched, int(before[0]))
    some = np.flatnonzero(count > 0)
    whole = some[:-1] if len(some) > 1 and count[some[-1]] < count[some[0]] else some
    if len(whole) < _FEWEST or count[whole].min() != count[whole].max():
        return None
    end = np.append(fetched[1:], last)[whole]
    told = f"each goes from one call of the DataLoader to the next, with {_times(int(count[whole[0]]))}"
    return _steps(fetched[whole], _ends(fetched[whole], end), lane, told)


def _accumulated(lane: int, stepped: Integers, done: Integers, fetched: Integers, each: int) -> Steps | None:
    """Steps of `each` calls of the loader and one optimizer step, which is `done` at the end."""
    first = np.searchsorted(fetched, stepped) - each  # the first call of each step
    before = np.append(0, np.searchsorted(fetched, stepped)[:-1])
    whole = first >= before
    told = f"each has {each} calls of the DataLoader and an optimizer step"
    return _steps(fetched[np.maximum(first, 0)][whole], done[whole], lane, told)


def _works(host: HostEvents, lane: int, fetched: Integers, last: int) -> Booleans:
    """Whether an operator or a call of the GPU's runtime begins behind each call of the loader, before the next."""
    busy = np.isin(host.category, (OPERATOR, RUNTIME)) & (host.lane == lane)
    loading = host.nearest((host.category == ANNOTATION) & host.named([bool(_NEXT_BATCH.match(n)) for n in host.names]))
    moments = host.start[busy & (loading < 0)]
    return np.diff(np.searchsorted(moments, np.append(fetched, last + 1))) > 0


def _ends(begin: Integers, end: Integers) -> Integers:
    """The ends of steps, the last no longer than the longest of the others: what follows the loop is no step."""
    end = end[: len(begin)].copy()
    if len(begin) > 1:
        end[-1] = min(int(end[-1]), int(begin[-1] + (end - begin)[:-1].max()))
    return end


def _times(count: int) -> str:
    return "one optimizer step" if count == 1 else f"{count} optimizer steps"


def _steps(start: Integers, end: Integers, lane: int, told: str) -> Steps | None:
    if len(start) < _FEWEST:
        return None
    return Steps(start, end, lane, True, tuple(map(str, range(len(start)))), told)
