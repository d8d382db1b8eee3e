"""Which module of the model each host event belongs to, by the first of three sources that the trace has.

1. `perfkit:module:` ranges, with the module's path in the model.
2. The profiler's Python stack (`with_stack`, `with_modules`): functions called `nn.Module: Block_0`. The path is that
   of the nested modules by class and number, such as `Block_0.Linear_1`; the model, which holds all, is left out.
3. The "Module Hierarchy" of an operator, as TorchScript models write it: `TOP(Net)::forward.h(Block)::forward.SELF(…)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from perfkit.profile_names import MODULE, ROOT
from perfkit.readers.columns import Integers
from perfkit.readers.kineto.decode.events import PYTHON, HostEvents

_STACK = "nn.Module: "
_LEVEL = re.compile(r"(?:^|\.)([^.()]+)\([^()]*\)::[^.()]*")


@dataclass(frozen=True)
class Modules:
    """`names` of modules; for each event the `code` of its module and the `innermost` event that says so, else −1."""

    names: list[str]
    code: Integers
    innermost: Integers


def find_modules(events: HostEvents) -> Modules:
    """The modules of all events by the best source there is."""
    if any(n.startswith(MODULE) for n in events.names):
        return _by_ranges(events)
    if any(n.startswith(_STACK) for n in events.names):
        return _by_stack(events)
    return _by_hierarchy(events)


def _by_ranges(events: HostEvents) -> Modules:
    words = sorted({n.removeprefix(MODULE) for n in events.names if n.startswith(MODULE)})
    code = {MODULE + word: i for i, word in enumerate(words)}
    return _inherited(events, words, np.array([code.get(n, -1) for n in events.names], dtype=np.int32)[events.name])


def _by_stack(events: HostEvents) -> Modules:
    """Paths from the nesting of the modules' calls."""
    here = events.named([n.startswith(_STACK) for n in events.names]) & (events.category == PYTHON)
    nearest = events.nearest(here)
    calls = np.flatnonzero(here)
    around = np.where(events.parent[calls] >= 0, nearest[events.parent[calls]], -1)
    label = [events.names[n].removeprefix(_STACK) for n in events.name[calls].tolist()]
    holders = set(around.tolist())
    roots = {w for w, i, a in zip(label, calls.tolist(), around.tolist(), strict=True) if a < 0 and i in holders}
    model = next(iter(roots)) if len(roots) == 1 else None
    path: dict[int, str] = {-1: ""}
    for i, outer, word in zip(calls.tolist(), around.tolist(), label, strict=True):
        own = "" if outer < 0 and word == model else word
        path[i] = ".".join(filter(None, (path[outer], own)))
    codes = {text: n for n, text in enumerate(dict.fromkeys(p or ROOT for i, p in path.items() if i >= 0))}
    own_code = np.full(len(events), -1, np.int32)
    own_code[calls] = [codes[path[i] or ROOT] for i in calls.tolist()]
    return _inherited(events, list(codes), own_code)


def _by_hierarchy(events: HostEvents) -> Modules:
    """Paths from the texts at the operators; without any no event has a module."""
    paths = [hierarchy_path(text) for text in events.hierarchies]
    codes = {text: n for n, text in enumerate(dict.fromkeys(p or ROOT for p in paths))}
    of_text = np.array([codes[p or ROOT] for p in paths] + [-1], dtype=np.int32)
    return _inherited(events, list(codes), of_text[events.hierarchy])


def hierarchy_path(text: str) -> str:
    """The module path in a "Module Hierarchy": `TOP(Net)::forward.h(Block)::forward.fc(Linear)::forward` → `h.fc`."""
    return ".".join(word for word in _LEVEL.findall(text) if word not in ("TOP", "SELF", "UNKNOWN_INSTANCE"))


def _inherited(events: HostEvents, names: list[str], own: Integers) -> Modules:
    innermost = events.nearest(own >= 0) if len(events) else own
    code = np.where(innermost >= 0, own[np.maximum(innermost, 0)], -1) if len(events) else own
    return Modules(names, code.astype(np.int32), innermost)
