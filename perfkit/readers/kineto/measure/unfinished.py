"""Operators that began and did not run, or ran elsewhere: on a CPU their events look like those of work that was done.

- Checkpointing stops a recomputation as soon as it has what the backward pass needs: the last product has begun, its
  inputs are saved, and an exception ends it.
- A Python dispatch mode (selective checkpointing, a subclass of Tensor) gets a call instead of the kernel. What it
  calls is recorded inside it; from a cache it calls nothing.
A product that ran calls helpers (it resolves conjugates, allocates its result). One without any, where equal calls have
some, did not run; the hooks that save its inputs only `detach`.
"""

from __future__ import annotations

import numpy as np

from perfkit.readers.columns import Booleans, Integers
from perfkit.readers.kineto.decode.events import OPERATOR, HostEvents

_HOOKS = ("aten::detach", "detach")
_MODES = ("PythonDispatchMode", "PythonSubclass")


def unfinished(events: HostEvents, above: Integers, products: Booleans) -> Booleans:
    """Operators whose kernel did not run; `above` is the operator around each, `products` have matrix FLOP."""
    inner = (events.category == OPERATOR) & (above >= 0)
    calls = inner & ~events.named([name in _HOOKS for name in events.names])
    helped, handed = np.zeros(len(events), bool), np.zeros(len(events), bool)
    helped[above[calls]] = True
    handed[above[inner & events.named([name in _MODES for name in events.names])]] = True
    known = products & (events.call >= 0)
    ran = np.zeros(len(events.calls) + 1, bool)
    ran[events.call[known & helped]] = True
    return handed | (known & ~helped & ran[events.call])


def around(events: HostEvents, chosen: Integers) -> Booleans:
    """The events around `chosen` ones."""
    found = np.zeros(len(events), bool)
    for event in chosen.tolist():
        while (event := int(events.parent[event])) >= 0 and not found[event]:
            found[event] = True
    return found


def nearest_above(events: HostEvents, chosen: Booleans) -> Integers:
    """For each event the innermost of `chosen` strictly around it, or −1."""
    nearest = events.nearest(chosen)
    result = np.full(len(events), -1, np.int64)
    below = events.parent >= 0
    result[below] = nearest[events.parent[below]]
    return result
