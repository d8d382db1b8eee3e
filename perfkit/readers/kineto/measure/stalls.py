"""Costs of a program's own habits: waits for a value, tensors made of Python lists, compilation inside the steps.

None of these is a row of the table, for no kernel runs meanwhile. All amounts are over the steps of the capture, in ns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from perfkit.columns import Booleans, Integers
from perfkit.intervals import Steps
from perfkit.numbers import unique
from perfkit.profile_names import blocks_host
from perfkit.readers.kineto.attribution.places import EventPlaces
from perfkit.readers.kineto.decode.events import OPERATOR, RUNTIME, DeviceEvents, HostEvents
from perfkit.readers.kineto.measure.gpu import at_work

_MOST = 100  # kinds of waits, places of lists
_UPLOAD = "HtoD"
_EMPTY, _ITEM, _TO, _LIFT = "aten::empty", "aten::item", "aten::to", "aten::lift_fresh"
_REGION, _COMPILE = "Torch-Compiled Region", "_compile.compile_inner (dynamo_timed)"


def facts(
    host: HostEvents,
    device: DeviceEvents,
    steps: Steps,
    places: EventPlaces,
    launch: Integers | None,
    waits: Callable[[str], bool],
) -> dict[str, Any]:
    """`host_waits`, `list_tensors` and `compiled` (docs/table.md). `waits` says by name which operators only wait,
    `launch` which host event launched each activity of the device (−1: none)."""
    if not len(host):
        return {"host_waits": [], "list_tensors": [], "compiled": _no_regions()}
    inside = places.step >= 0
    found = waits_of(host, device, steps, places, launch, waits)
    return {
        "host_waits": _summed(host, places, *found, uploads(host, device, places, launch)),
        "list_tensors": _lists(host, places, inside),
        "compiled": _compiled(host, inside),
    }


def waits_of(
    host: HostEvents,
    device: DeviceEvents,
    steps: Steps,
    places: EventPlaces,
    launch: Integers | None,
    waits: Callable[[str], bool],
) -> tuple[Integers, Integers | None]:
    """The host events that wait for a value or a device, and how long a GPU idles for each; None on a CPU."""
    inside = places.step >= 0
    if launch is not None and len(device):
        return _device_waits(host, device, steps, places, inside, launch)
    return _value_reads(host, inside, waits)


def _named(host: HostEvents, test: Callable[[str], bool]) -> Booleans:
    return host.named([test(name) for name in host.names])


def _value_reads(host: HostEvents, inside: Booleans, waits: Callable[[str], bool]) -> tuple[Integers, Integers | None]:
    """On a CPU nothing waits; what reading a value costs is its operator: the outermost of those inside each other."""
    reads = _named(host, waits) & (host.category == OPERATOR) & inside
    return np.flatnonzero(reads & ~_within(host, reads)), None


def _within(host: HostEvents, chosen: Booleans) -> Booleans:
    """Return whether each event is inside a `chosen` one, itself not counted."""
    around = host.nearest(chosen)
    return (host.parent >= 0) & (around[np.maximum(host.parent, 0)] >= 0)


def _device_waits(
    host: HostEvents, device: DeviceEvents, steps: Steps, places: EventPlaces, inside: Booleans, launch: Integers
) -> tuple[Integers, Integers]:
    """The blocking calls of the steps' own thread, and how long the GPU idles for each.

    The window of a wait lasts from the call to the next activity of the GPU that starts after it. Ending the wait
    saves no more of the idle time in it than the call itself took: the host would go on earlier by that. The
    synchronisation that ends a step, outside any operator and with no launch after it, belongs to who measures.
    """
    blocks = (host.category == RUNTIME) & inside & (host.lane == steps.lane) & _named(host, blocks_host)
    calls = np.flatnonzero(blocks)
    closing = (places.operator[calls] < 0) & (_next_call(host, steps, calls) != places.step[calls])
    calls = calls[~closing]
    cover = at_work(host, device, launch)
    after = np.searchsorted(device.start, host.end[calls])
    until = np.where(after < len(device), device.start[np.minimum(after, len(device) - 1)], host.end[calls])
    window = until - host.start[calls]
    idle = window - (cover.until(until) - cover.until(host.start[calls]))
    return calls, np.minimum(idle, host.end[calls] - host.start[calls])


def _next_call(host: HostEvents, steps: Steps, calls: Integers) -> Integers:
    """The step of the next launch (a CUDA call with a correlation that waits for nothing) after each of `calls`."""
    launches = (host.category == RUNTIME) & (host.lane == steps.lane) & _named(host, lambda n: "Launch" in n)
    start = np.sort(host.start[launches])
    at = np.searchsorted(start, host.end[calls])
    found = np.where(at < len(start), start[np.minimum(at, len(start) - 1)] if len(start) else -1, -1)
    return np.where(found >= 0, steps.at(found), -1)


def uploads(host: HostEvents, device: DeviceEvents, places: EventPlaces, launch: Integers | None) -> dict[int, str]:
    """The copies to the device by the operators, host events, that made them."""
    if launch is None or not len(device):
        return {}
    copies = np.array([_UPLOAD in name for name in device.names], bool)[device.name] & (launch >= 0)
    operators = places.operator[np.maximum(launch[copies], 0)]
    names = [device.names[code] for code in device.name[copies].tolist()]
    return {event: name for event, name in zip(operators.tolist(), names, strict=True) if event >= 0}


def _summed(
    host: HostEvents, places: EventPlaces, waits: Integers, idle: Integers | None, uploads: dict[int, str]
) -> list[dict[str, Any]]:
    """Waits by operator, module and the copy to the device that they wait for ("" for a value that comes from it), the
    longest first; `idle_ns` is None where no GPU is in the trace."""
    operator = np.where(places.operator[waits] >= 0, host.name[np.maximum(places.operator[waits], 0)], host.name[waits])
    copies = [uploads.get(event, "") for event in places.operator[waits].tolist()]
    return _grouped(
        [host.names[n] for n in operator.tolist()],
        _modules(places, waits),
        copies,
        (host.end - host.start)[waits],
        idle,
    )


def _modules(places: EventPlaces, events: Integers) -> list[str]:
    return [places.module_names[m] if m >= 0 else "" for m in places.module[events].tolist()]


def _grouped(
    names: list[str], modules: list[str], copies: list[str], ns: Integers, idle: Integers | None
) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for i, key in enumerate(zip(names, modules, copies, strict=True)):
        entry = groups.setdefault(
            key,
            {
                "operator": key[0],
                "module": key[1],
                "copy": key[2],
                "count": 0,
                "ns": 0,
                "idle_ns": None if idle is None else 0,
            },
        )
        entry["count"] += 1
        entry["ns"] += int(ns[i])
        if idle is not None:
            entry["idle_ns"] += int(idle[i])
    return sorted(groups.values(), key=lambda e: (-e["ns"], e["operator"], e["module"], e["copy"]))[:_MOST]


def _lists(host: HostEvents, places: EventPlaces, inside: Booleans) -> list[dict[str, Any]]:
    """Tensors made of Python lists (`torch.tensor(values)`), by module.

    They show as siblings `empty`, then no operator while the values are copied one by one, `to`, `lift_fresh`. Before
    `empty` the list is walked once for its type and shape, which takes about as long as filling: that much of the time
    before it counts too, as far as no other operator ran. Waiting for the GPU does not count.
    """
    events, ns = conversions(host, inside)
    none = [""] * len(events)
    entries = _grouped(none, _modules(places, events), none, ns, None)
    return [{name: entry[name] for name in ("module", "count", "ns")} for entry in entries]


def conversions(host: HostEvents, inside: Booleans) -> tuple[Integers, Integers]:
    """The events `lift_fresh` that end the making of a tensor out of a list, and what that took, in ns."""
    lifts = np.flatnonzero(_named(host, lambda n: n == _LIFT) & inside)
    if not len(lifts):
        return lifts, lifts
    kept = np.flatnonzero(np.isin(host.parent, unique(host.parent[lifts])) & inside)
    order = kept[np.lexsort((host.start[kept], host.parent[kept], host.lane[kept]))].tolist()
    at = {event: i for i, event in enumerate(order)}
    blocks = np.flatnonzero((host.category == RUNTIME) & _named(host, blocks_host))
    found, ns = [], []
    for lift in lifts.tolist():
        spent = _conversion(host, order, at[lift], blocks)
        if spent:
            found.append(lift)
            ns.append(spent)
    return np.array(found, dtype=np.int64), np.array(ns, dtype=np.int64)


def _conversion(host: HostEvents, order: list[int], at: int, blocks: Integers) -> int:
    """Return the ns of making one tensor, by the place of its `lift_fresh` among its siblings; 0: not of a list."""

    def name(i: int) -> str:
        same = (
            i >= 0 and host.parent[order[i]] == host.parent[order[at]] and host.lane[order[i]] == host.lane[order[at]]
        )
        return host.names[host.name[order[i]]] if same else ""

    to = at - 1
    first = to - 1
    while name(first) == _ITEM:  # of a list of tensors
        first -= 1
    if name(to) != _TO or name(first) != _EMPTY:
        return 0
    made, moved = order[first], order[to]
    filling = int(host.start[moved] - host.end[made])
    parent = int(host.parent[made])
    before = int(host.end[order[first - 1]]) if name(first - 1) else int(host.start[parent]) if parent >= 0 else None
    walk = 0 if before is None else min(filling, int(host.start[made]) - before)
    waits = blocks[(host.lane[blocks] == host.lane[moved]) & (host.start[blocks] >= host.start[moved])]
    waits = waits[host.end[waits] <= host.end[moved]]
    waited = int((host.end[waits] - host.start[waits]).sum())
    return int(host.end[moved] - host.start[made]) - waited + max(walk, 0)


def _no_regions() -> dict[str, Any]:
    return {"regions": 0, "resumed": 0, "compilations": 0, "compile_ns": 0}


def _compiled(host: HostEvents, inside: Booleans) -> dict[str, Any]:
    """Compiled regions that ran, those inside another one (what follows a graph break), and compilations."""
    regions = _named(host, lambda n: n.startswith(_REGION)) & inside
    compiles = _named(host, lambda n: n == _COMPILE) & inside
    outer = compiles & ~_within(host, compiles)
    return {
        "regions": int(regions.sum()),
        "resumed": int((regions & _within(host, regions)).sum()),
        "compilations": int(compiles.sum()),
        "compile_ns": int((host.end - host.start)[outer].sum()),
    }
