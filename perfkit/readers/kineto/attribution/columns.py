"""The place columns of rows, from what each source says of them (`perfkit.tree.placement` has their order):

ranges, module hooks and autograd's links (`places`), for collectives their own range, lines of a generated program
(`lines`), call sites that a compiler recorded, and the model's own work next to them (`call_sites`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfkit.columns import Coded, Integers
from perfkit.intervals import Steps
from perfkit.profile_names import LINE, NCCL, PREFIX, PROFILER_STEP, ProgramLine, line_of
from perfkit.readers.kineto.attribution.call_sites import Located, by_call_sites
from perfkit.readers.kineto.attribution.gpu_steps import GpuSteps, Launches, find_gpu_steps, find_launches
from perfkit.readers.kineto.attribution.places import EVIDENCE, OPTIMIZER, EventPlaces, places_of
from perfkit.readers.kineto.attribution.steps import find_steps
from perfkit.readers.kineto.decode.events import ANNOTATION, OPERATOR, DeviceEvents, HostEvents, values_at
from perfkit.tree import shares
from perfkit.tree.placement import EVENTS, SUFFIX, Placement, Words, distinct_pairs, settled
from perfkit.tree.placement import LINE as BY_LINE

_LONGEST_PATH = 10_000  # characters of a path of ranges; damaged traces nest without end


@dataclass(frozen=True)
class Placed:
    """The steps of a trace as the host marks them, the place of each host event, what launched each activity, and the
    steps as the GPU ran them (None: without a GPU)."""

    steps: Steps
    places: EventPlaces
    launches: Launches | None
    on_gpu: GpuSteps | None

    @property
    def launch(self) -> Integers:
        """The host event that launched each activity, −1 for none in the trace."""
        return self.launches.call if self.launches is not None else np.empty(0, np.int64)


def place(host: HostEvents, device: DeviceEvents) -> Placed:
    """Work out where every event belongs."""
    launches = find_launches(host, device) if len(device) else None
    call = launches.call if launches is not None else np.empty(0, np.int64)
    steps = find_steps(host, device, call)
    places = places_of(host, steps)
    return Placed(
        steps, places, launches, find_gpu_steps(host, device, steps, call, places.step) if len(device) else None
    )


def of_operators(
    host: HostEvents, placed: Placed, chosen: Integers, located: Located | None, warnings: list[str]
) -> dict[str, Any]:
    """Place columns of rows on the CPU, the host events `chosen`; `located` are the calls of compiled graphs.

    Adds to `warnings` what could not be placed.
    """
    columns = of_events(host, placed.places, chosen)
    step = placed.places.step[chosen]
    return {"step": step} | _settled(host, placed.places, chosen, columns, located, warnings)


def of_activities(
    host: HostEvents,
    device: DeviceEvents,
    placed: Placed,
    launches: Launches,
    located: Located | None,
    warnings: list[str],
    captured: Sequence[Placement] = (),
) -> dict[str, Any]:
    """Place columns of all activities of a GPU, likewise, with what is said of those that were `captured` into CUDA
    graphs. A launch outside the trace leaves the place absent."""
    assert placed.on_gpu is not None
    step = placed.on_gpu.step
    columns = of_events(host, placed.places, launches.around)
    columns["operator"] = _operator_names(host, device, placed.places, launches)
    return {"step": step} | _settled(host, placed.places, launches.around, columns, located, warnings, captured)


def _settled(
    host: HostEvents,
    places: EventPlaces,
    chosen: Integers,
    columns: dict[str, Coded],
    located: Located | None,
    warnings: list[str],
    captured: Sequence[Placement] = (),
) -> dict[str, Coded]:
    """Place columns by all sources; `columns` are those of the events."""
    passes = columns["pass"]
    placements = [
        Placement(EVENTS, columns),
        *captured,
        *by_lines(host, places, chosen, passes),
    ]
    if located is not None:
        placements += by_call_sites(host, places, chosen, columns["module"], passes, located, warnings)
    return {name: Coded(list(found.words), found.code) for name, found in settled(placements).items()}


def of_events(host: HostEvents, places: EventPlaces, chosen: Integers) -> dict[str, Coded]:
    """Return place columns of the host events `chosen`, in this order; −1 (no event) gives absent values."""
    operator = values_at(places.operator, chosen)
    return {
        "pass": Coded(places.pass_names, values_at(places.pass_, chosen)),
        "module": Coded(places.module_names, values_at(places.module, chosen)),
        "operator": Coded(host.names, values_at(host.name, operator)),
        "range": _range_paths(host, chosen),
        "placed_by": Coded(list(EVIDENCE), np.maximum(values_at(places.evidence, chosen), 0)),
    }


def _range_paths(host: HostEvents, chosen: Integers) -> Coded:
    """Paths of the annotations around the chosen events, perfkit's own and the profiler's steps left out."""
    shown = [not n.startswith((PREFIX, PROFILER_STEP)) for n in host.names]
    own = (host.category == ANNOTATION) & host.named(shown)
    nearest = host.nearest(own)
    paths: dict[str, int] = {}
    text: list[str] = []
    code_of = np.full(len(host) + 1, -1, np.int32)
    for i in np.flatnonzero(own).tolist():
        parent = host.parent[i]
        around = code_of[nearest[parent]] if parent >= 0 else -1
        name = host.names[host.name[i]]
        path = f"{text[around]}/{name}" if around >= 0 and len(text[around]) < _LONGEST_PATH else name
        code_of[i] = paths.setdefault(path, len(paths))
        if len(text) < len(paths):
            text.append(path)
    return Coded(text, code_of[values_at(nearest, chosen)])


def _operator_names(host: HostEvents, device: DeviceEvents, places: EventPlaces, found: Launches) -> Coded:
    """The logical operator; for a collective the range of the collective itself, whatever set it off."""
    if not len(host):
        return Coded([], np.full(len(device), -1))
    logical = np.where(found.operator >= 0, places.operator[np.maximum(found.operator, 0)], -1)
    range_ = host.nearest((host.category == ANNOTATION) & host.named([n.startswith(NCCL) for n in host.names]))
    collective = np.where(found.call >= 0, range_[np.maximum(found.call, 0)], -1)
    chosen = np.where(collective >= 0, collective, logical)
    return Coded(host.names, np.where(chosen >= 0, host.name[np.maximum(chosen, 0)], -1))


_COLUMNS = ("module", "operator", "placed_by", "serves", SUFFIX)


def by_lines(host: HostEvents, places: EventPlaces, chosen: Integers, passes: Coded) -> list[Placement]:
    """Return what lines say of the rows of the `chosen` host events (−1: none), whose passes are known.

    Nothing where the trace has no lines, and nothing of the optimizer.
    """
    known = [line_of(name) if name.startswith(LINE) else None for name in host.names]
    if not any(known):
        return []
    around = _around(host, places, np.array([line is not None for line in known]))
    event = np.where(chosen >= 0, around[np.maximum(chosen, 0)], -1)
    name = np.where(event >= 0, host.name[np.maximum(event, 0)], -1)
    optimizer = np.array([word == OPTIMIZER for word in [*passes.words, ""]])[passes.code]
    name = np.where(optimizer, -1, name)
    # One line of columns for each name of a range and pass that occur together.
    pairs, which = distinct_pairs(name, passes.code)
    words = [_words_of_line(known[n] if n >= 0 else None, passes.words[p] if p >= 0 else "") for n, p in pairs]
    columns = {key: Words.of([one.get(key) for one in words], which) for key in _COLUMNS}
    return [Placement(BY_LINE, columns)]


def _words_of_line(line: ProgramLine | None, pass_: str) -> dict[str, str | None]:
    """Return what a line says of a row in a pass, by column."""
    if line is None:
        return {}
    words: dict[str, str | None] = {SUFFIX: f"generated:{line.number}"} if line.number else {}
    if not line.served:
        return words
    parts = [shares.OperatorShare(pass_, module, operator, share) for module, operator, share in line.served]
    main = shares.main(parts)
    place = {"module": main.module, "operator": main.operator, "placed_by": line.evidence}
    return {**words, **place, "serves": shares.text(parts)}


def _around(host: HostEvents, places: EventPlaces, is_line: Any) -> Integers:
    """For each host event the line that it ran in, an event index, or −1."""
    lines = host.named(is_line)
    found = host.nearest(lines)
    index = np.flatnonzero(lines)
    nodes = places.node[index]
    inside = nodes >= 0
    if not inside.any():
        return found
    last: dict[int, int] = {}
    for node, event in zip(nodes[inside].tolist(), index[inside].tolist(), strict=True):
        last[node] = event  # in order of start, so the last one stays
    lasts = np.full(len(host), -1, np.int64)
    lasts[list(last)] = list(last.values())
    behind = np.where(places.node >= 0, lasts[np.maximum(places.node, 0)], -1)
    after = (found < 0) & (behind >= 0) & (host.category == OPERATOR)
    after &= host.start >= host.end[np.maximum(behind, 0)]
    return np.where(after, behind, found)
