"""The content of CUDA graphs that a program captured by itself, from traces of their captures
(`perfkit.capture.agent.recording.graphs`).

A capture launches in the order of the graph's nodes, and a graph of one stream runs in that order. So the nth activity
of a replay is the nth launch of its capture, and has that launch's operator, module, pass and work. A graph is left
alone where that is not certain: where streams wait for each other in the capture, where the numbers or kinds of
launches differ, or where an operator's kernels are not of its family.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.columns import Booleans, Coded, Integers
from perfkit.cost import CostModel
from perfkit.errors import InputError
from perfkit.numbers import numbered
from perfkit.profile_names import GRAPH, STREAM_WAIT, effect_of_call
from perfkit.readers.kineto.attribution.columns import of_events, place
from perfkit.readers.kineto.attribution.gpu_steps import Launches
from perfkit.readers.kineto.attribution.places import EventPlaces
from perfkit.readers.kineto.decode.events import (
    ANNOTATION,
    COPY,
    FILL,
    KERNEL,
    OPERATOR,
    RUNTIME,
    DeviceEvents,
    HostEvents,
)
from perfkit.readers.kineto.decode.read import read_events
from perfkit.readers.kineto.measure import foreach
from perfkit.readers.kineto.measure.calls import KindOfCall
from perfkit.readers.kineto.measure.rows import HostRows, on_device, shapes_of, wanted
from perfkit.readers.kineto.measure.work import owners
from perfkit.run_folder import DeclaredKernel
from perfkit.tree.placement import CAPTURE, Placement

BEGIN, END = "StreamBeginCapture", "StreamEndCapture"
# Families whose kernels have names of their own: those of the kernels that such operators may have.
_TELLING = {"matmul": ("matmul",), "attention": ("attention",), "convolution": ("convolution", "matmul", "fft")}
_COLUMNS = ("pass", "module", "operator", "placed_by")


@dataclass(frozen=True)
class Capture:
    """The trace of one capture: its events, their places and kinds of calls, and the `launches` that made the graph's
    nodes, in order, each of a `kind` as activities have it."""

    host: HostEvents
    places: EventPlaces
    rows: HostRows
    launches: Integers
    kind: Integers

    def operators(self) -> Integers:
        """For each launch the innermost operator of known cost around it, or −1."""
        return owners(self.host, self.rows, self.launches)

    def shapes(self) -> Coded:
        """For each launch the shapes of the innermost operator around it that has some, be its cost known or not."""
        has_some = np.array([*(kind.shapes is not None for kind in self.rows.kinds), False], dtype=bool)
        around = self.host.nearest(has_some[self.rows.kind])[self.launches]
        return shapes_of(self.rows, np.where(around >= 0, self.rows.kind[np.maximum(around, 0)], -1))


@dataclass(frozen=True)
class ReplayedActivities:
    """For each activity the capture that its replay is of, the launch in it, and the replay (−1 for none)."""

    captures: Sequence[Capture]
    capture: Integers
    launch: Integers
    replay: Integers

    @property
    def placed(self) -> Booleans:
        """Which activities have a launch."""
        return self.launch >= 0

    def calls(self) -> Iterator[tuple[Booleans, Integers, list[KindOfCall], Integers]]:
        """Yield for each capture the activities whose work is known, the call that each is of, counted over all
        replays, the kinds of calls, and which of them each call is."""
        for number, capture in enumerate(self.captures):
            operator = capture.operators()
            which = self.capture == number
            which[which] = operator[self.launch[which]] >= 0
            mine = self.replay[which] * len(capture.host) + operator[self.launch[which]]
            calls, call = numbered(mine)
            kinds, kind = numbered(capture.rows.kind[calls % max(1, len(capture.host))])
            yield which, call, [capture.rows.kinds[one] for one in kinds.tolist()], kind

    def described(self, known: Coded) -> Coded:
        """The `known` shapes, and where an activity has none those around its launch: of a custom operator, of which
        no cost is known."""
        for number, capture in enumerate(self.captures):
            mine, shapes = self.capture == number, capture.shapes()
            code = np.full(len(mine), -1, np.int64)
            code[mine] = np.asarray(shapes.code)[self.launch[mine]]
            known = known.fillna(Coded(shapes.words, code))
        return known

    def placement(self) -> list[Placement]:
        """Return what captures say of the places of all activities."""
        if not self.placed.any():
            return []
        each = [_places(capture) for capture in self.captures]
        columns = {}
        for name in _COLUMNS:
            words = [word for one in each for word in one[name].words]
            starts = np.cumsum([0, *(len(one[name].words) for one in each)])
            code = np.full(len(self.capture), -1, np.int64)
            for number, one in enumerate(each):
                mine = self.capture == number
                own = np.asarray(one[name].code)[self.launch[mine]]
                code[mine] = np.where(own >= 0, own + starts[number], -1)
            columns[name] = Coded(words, code)
        return [Placement(CAPTURE, columns)]


def without_passes(placements: Sequence[Placement]) -> list[Placement]:
    """Return the places of replays in iterations of an engine, whose pass is their phase: the pass in which a graph was
    captured means nothing."""
    return [
        Placement(one.source, {name: column for name, column in one.columns.items() if name != "pass"})
        for one in placements
    ]


def read_captures(
    paths: Mapping[int, Path], costs: CostModel, declared: Mapping[str, DeclaredKernel], matmul_precision: str
) -> dict[int, Capture]:
    """The captures of the traces at `paths`, by the number of their graph, but for those that forked or are damaged."""
    found = {number: _read(path, costs, declared, matmul_precision) for number, path in paths.items()}
    return {number: capture for number, capture in found.items() if capture is not None}


def _read(
    path: Path, costs: CostModel, declared: Mapping[str, DeclaredKernel], matmul_precision: str
) -> Capture | None:
    try:
        events = read_events(path, wanted(costs, declared))
    except InputError:  # the program was ended while it wrote
        return None
    host, places = events.host, place(events.host, events.device).places
    launches = _launches(host)
    if launches is None:
        return None
    rows = on_device(host, places.wrapper, costs, declared, matmul_precision)
    kind = np.array([kind_of(host.names[code]) for code in host.name[launches].tolist()], np.int64)
    return Capture(host, places, rows, launches, kind)


def _launches(host: HostEvents) -> Integers | None:
    """The calls that made the nodes of the graph, in order; None where they fork, or where no capture was recorded."""
    runtime = host.category == RUNTIME
    begin = np.flatnonzero(runtime & host.named([name.endswith(BEGIN) for name in host.names]))
    end = np.flatnonzero(runtime & host.named([name.endswith(END) for name in host.names]))
    if not len(begin) or not len(end):
        return None
    inside = runtime & (host.start >= host.end[begin].min()) & (host.end <= host.start[end].max())
    if (inside & host.named([effect_of_call(name) == STREAM_WAIT for name in host.names])).any():  # it forks
        return None
    found = np.flatnonzero(inside & host.named([kind_of(name) >= 0 for name in host.names]))
    return found[np.argsort(host.start[found], kind="stable")]


def kind_of(call: str) -> int:
    """Return the kind of activity that a runtime or driver call starts, −1 for none."""
    if "Launch" in call and "GraphLaunch" not in call and "HostFunc" not in call:
        return KERNEL
    return COPY if "Memcpy" in call else FILL if "Memset" in call else -1


def _places(capture: Capture) -> dict[str, Coded]:
    """Place columns of the launches of a capture."""
    operator = capture.host.nearest(capture.host.category == OPERATOR)[capture.launches]
    return of_events(capture.host, capture.places, np.where(operator >= 0, operator, capture.launches))


def find_replayed(
    host: HostEvents, device: DeviceEvents, launches: Launches, captures: Mapping[int, Capture], costs: CostModel
) -> ReplayedActivities | None:
    """Which launch of which capture each activity is that a replay ran; None without any.

    Operators on long lists of tensors, which profilers leave out, get theirs in `captures` by what replays show.
    """
    replayed = np.flatnonzero(launches.replayed)
    if not captures or not len(replayed):
        return None
    numbers = sorted(captures)
    number_of = {f"{GRAPH}{number}": at for at, number in enumerate(numbers)}
    of_name = np.array([number_of.get(name, -1) for name in host.names], np.int64)
    around = host.nearest((host.category == ANNOTATION) & host.named(of_name >= 0))
    families = np.array([costs.family(name) for name in device.names], object)
    found = ReplayedActivities(
        [captures[number] for number in numbers], *(np.full(len(device), -1, np.int64) for _ in range(3))
    )
    completed: set[int] = set()
    order = replayed[np.lexsort((device.start[replayed], launches.call[replayed]))]
    for one in np.split(order, np.flatnonzero(np.diff(launches.call[order])) + 1):
        call = int(launches.call[one[0]])
        at = int(of_name[host.name[around[call]]]) if around[call] >= 0 else -1
        if at < 0 or not fits(found.captures[at], device.kind[one], families[device.name[one]], costs):
            continue
        found.capture[one], found.launch[one], found.replay[one] = at, np.arange(len(one)), call
        if at not in completed:
            completed.add(at)
            _complete(found.captures[at], device, one, costs)
    return found


def _complete(capture: Capture, device: DeviceEvents, replay: Integers, costs: CostModel) -> None:
    """Give operators on lists the tensors that the capture does not show, by the blocks of the kernels in a
    `replay`."""
    launch = np.full(len(device), -1, np.int64)
    launch[replay] = capture.launches
    foreach.complete(capture.host, device, capture.places, capture.rows, launch, costs)


def fits(capture: Capture, kinds: Integers, families: Any, costs: CostModel) -> bool:
    """Return whether what a replay ran, of these kinds and families, may be what the capture launched, one by one."""
    if not np.array_equal(capture.kind, kinds):
        return False
    operator, host = capture.operators(), capture.host
    of_name = np.array([costs.family(name) for name in host.names], object)
    for family, may_be in _TELLING.items():
        mine = (operator >= 0) & (of_name[host.name[np.maximum(operator, 0)]] == family)
        right = mine & np.isin(families.astype(str), may_be)
        if not np.isin(operator[mine], operator[right]).all():
            return False
    return True
