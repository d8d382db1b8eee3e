"""Which operators on a CPU are rows, where one calls another: no work counts twice, and none is lost.

1. An operator of kind work inside which no other works is a row, unless its kernel did not run (`unfinished`).
2. If it calls an operator that does its work for it, the called one is the row, and its own self time is dispatch. The
   called one does it where `CostModel.kind` knows (`clone` calls `copy_`), where it has the same name, or where the
   operators inside have all of its products. Called by one of its own name (a level of functorch), it has left its work
   to them where they compute as much as it counts.
3. If its cost is unknown, it is dispatch where less than half of its duration is its own time and some of the operators
   inside have known costs: a composite.
4. Otherwise it is a row, and so are helpers inside it whose cost is known (`addmm` that copies its bias first). Helpers
   of unknown cost belong to it: their time is added to its row.
5. A composite whose FLOP nothing inside it accounts for did them itself (a transposed convolution by oneDNN): a row. So
   is one inside which nothing works, and which takes longer than dispatch does, unless Python runs it (`prims::`).
6. Compiled code that records no operators (AOTInductor's, a graph of Inductor's, a function of an extension) is a row
   of unknown work where each call takes longer by itself than any function around operators does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.cost import Cost, CostModel
from perfkit.numbers import numbered
from perfkit.profile_names import GENERATED_BACKWARD, GRAPH_RUNS, PRIMS, THUNDER, THUNDER_OUTPUT
from perfkit.readers.kineto.decode.events import OPERATOR, HostEvents
from perfkit.readers.kineto.measure.calls import KindOfCall
from perfkit.readers.kineto.measure.rows import DISPATCH, PYTHON_CODE, WORK, HostRows, fake, kinds_of_calls, on_device
from perfkit.run_folder import DeclaredKernel

# Share of an operator's own time: dispatch takes a few µs, and a thread that is put aside may make one call of it long.
_LONG_NS, _SEVERAL, _CERTAIN_NS = 20_000, 3, 200_000


def choose(
    events: HostEvents,
    wrapper: Booleans,
    costs: CostModel,
    declared: Mapping[str, DeclaredKernel],
    matmul_precision: str,
) -> HostRows:
    """Decide about every host event of a trace without a GPU."""
    rows = on_device(events, wrapper, costs, declared, matmul_precision)
    left = [name.startswith("aten::") and costs.kind(name) == "dispatch" for name in events.names]
    composites = (events.category == OPERATOR) & (rows.cause == DISPATCH) & events.named(left) & ~fake(events)
    in_python = np.flatnonzero(events.named([name.startswith(PRIMS) for name in events.names]))
    outer = nearest_above(events, composites)[in_python]
    composites[outer[outer >= 0]] = False
    costed = np.flatnonzero(composites & events.named([costs.is_composite(name) for name in events.names]))
    kinds, codes = kinds_of_calls(events, costed, costs, declared, matmul_precision)
    rows.kind[costed] = codes + len(rows.kinds)
    rows.kinds.extend(kinds)
    multiplies = np.array([*(k.cost is not None and k.cost.matrix_flop > 0 for k in rows.kinds), False], dtype=bool)
    above = nearest_above(events, events.category == OPERATOR)
    Settling(rows, events, costs, composites, unfinished(events, above, multiplies[rows.kind]), above).run()
    _add_opaque(rows, events, costs)
    return rows


def _add_opaque(rows: HostRows, events: HostEvents, costs: CostModel) -> None:
    """Make rows of functions without a namespace, of which nothing else is known, that compute by themselves."""
    graphs = [name.startswith(GRAPH_RUNS) for name in events.names]
    unknown = ["::" not in name and not _only_calls(name) and costs.kind(name) == "work" for name in events.names]
    named = events.named(graphs) | (events.named(unknown) & (events.category == OPERATOR))
    named &= rows.cause == PYTHON_CODE
    found, outer = np.flatnonzero(named), nearest_above(events, named)
    inside = np.bincount(outer[rows.is_row & (outer >= 0)], minlength=len(events))  # rows, between which Python runs
    shortest, _ = _shortest(events.self_ns[found] // (1 + inside[found]), events.name[found])
    opaque = found[shortest >= _CERTAIN_NS]
    rows.kinds.append(KindOfCall(None, None))
    rows.is_row[opaque], rows.cause[opaque], rows.kind[opaque] = True, WORK, len(rows.kinds) - 1


def _only_calls(name: str) -> bool:
    """Return whether a function computes nothing itself, however long its Python takes."""
    return name in (THUNDER, THUNDER_OUTPUT) or name.startswith(GENERATED_BACKWARD)


def _shortest(ns: Integers, alike: Integers) -> tuple[Integers, Integers]:
    """For each of `ns` the shortest of those with the same code in `alike`, and how many these are."""
    _, group = numbered(alike)
    shortest = np.full(len(ns), np.iinfo(np.int64).max)
    np.minimum.at(shortest, group, ns)
    return shortest[group], np.bincount(group, minlength=len(ns))[group]


@dataclass
class Settling:
    """The decision about all operators of a trace: `rows` are changed in place, inner operators first."""

    rows: HostRows
    events: HostEvents
    costs: CostModel
    composites: Booleans  # operators that leave their work to others, as far as the cost model knows
    unfinished: Booleans
    above: Integers  # the innermost operator around each operator
    inside: dict[int, list[int]] = field(default_factory=dict)  # the rows of what an operator calls

    def run(self) -> None:
        """Decide about every operator."""
        rows, events = self.rows, self.events
        rows.is_row[self.unfinished], rows.cause[self.unfinished & (rows.cause == WORK)] = False, DISPATCH
        stopped = around(events, np.flatnonzero(self.unfinished))
        candidates = (rows.cause == WORK) | (self.composites & ~self.unfinished & ~stopped)
        chosen = np.flatnonzero(candidates)
        nearest = nearest_above(events, candidates)
        called: dict[int, list[int]] = {}
        for i in chosen[nearest[chosen] >= 0].tolist():
            called.setdefault(int(nearest[i]), []).append(i)
        left = [i for i in np.flatnonzero(stopped & (rows.cause == WORK)).tolist() if i not in called]
        rows.is_row[left], rows.cause[left] = False, DISPATCH  # what they called for their work did not run
        lasting = self._lasting(chosen[self.composites[chosen]])
        alone = np.flatnonzero(self.composites & candidates).tolist()
        for outer in sorted({*called, *alone}, reverse=True):
            self._decide(outer, called.get(outer, []), lasting)

    def _decide(self, outer: int, called: list[int], lasting: set[int]) -> None:
        rows = self.rows
        found = [r for c in called for r in ([c] if rows.is_row[c] else self.inside.get(c, []))]
        self.inside[outer] = found
        if self.composites[outer]:
            own = self._works_itself(outer, found, lasting)
            rows.is_row[outer], rows.cause[outer] = own, WORK if own else DISPATCH
        elif called and self._done_by(outer, called, found):
            rows.is_row[outer], rows.cause[outer] = False, DISPATCH
        if rows.is_row[outer] and self._cost(outer) is not None:
            self._absorb(outer, found)

    def _works_itself(self, outer: int, found: list[int], lasting: set[int]) -> bool:
        """Return whether a composite is a row: nothing inside it does what it has to."""
        own, inner = self._cost(outer), [self._cost(r) for r in found]
        if own is None or not own.matrix_flop:
            return not found and outer in lasting
        return all(cost is not None for cost in inner) and not _multiply(inner, own)

    def _done_by(self, outer: int, called: list[int], found: list[int]) -> bool:
        """Return whether the operators inside `outer` do its work."""
        events = self.events
        name, own = events.names[events.name[outer]], self._cost(outer)
        names = {events.names[events.name[c]] for c in called}
        if name in names or self.costs.kind(name, names) == "dispatch":
            return True
        if self.costs.family(name) == "collective":
            return False  # a library's thread does it; what is copied for that does not belong to it
        inner = [self._cost(r) for r in found]
        if own is not None:
            above = int(self.above[outer])
            level = above >= 0 and events.names[events.name[above]] == name
            return _multiply(inner, own) or (level and _covers(inner, own))
        whole = int(events.end[outer] - events.start[outer])
        return 2 * int(events.self_ns[outer]) <= whole and any(cost is not None for cost in inner)

    def _absorb(self, outer: int, found: list[int]) -> None:
        """Add helpers of unknown cost to the row of `outer`."""
        rows = self.rows
        for r in found:
            if self._cost(r) is None:
                rows.time_ns[outer] += rows.time_ns[r]
                rows.time_ns[r] = 0
                rows.is_row[r] = False

    def _cost(self, event: int) -> Cost | None:
        code = int(self.rows.kind[event])
        return self.rows.kinds[code].cost if code >= 0 else None

    def _lasting(self, composites: Integers) -> set[int]:
        """The composites of which every call of the kind takes longer than dispatch; unknown ones get a kind."""
        rows, events = self.rows, self.events
        rows.kinds.append(KindOfCall(None, None))
        rows.kind[composites[rows.kind[composites] < 0]] = len(rows.kinds) - 1
        known = events.call[composites] >= 0
        alike = np.where(known, events.call[composites] + len(events.names), events.name[composites])
        shortest, count = _shortest(events.self_ns[composites], alike)
        return set(composites[shortest >= np.where(count >= _SEVERAL, _LONG_NS, _CERTAIN_NS)].tolist())


def _multiply(inner: list[Cost | None], own: Cost) -> bool:
    """Return whether the costs `inner` have all products of `own`, if it has any."""
    return 0 < own.matrix_flop <= sum(cost.matrix_flop for cost in inner if cost is not None)


def _covers(inner: list[Cost | None], own: Cost) -> bool:
    """Return whether the costs `inner` have at least the FLOP of `own`, or its bytes where it computes nothing."""
    total = sum((cost for cost in inner if cost is not None), Cost())
    if own.total_flop:
        return total.total_flop >= own.total_flop
    return 0 < own.bytes <= total.bytes


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
