"""What CUDA graphs hold that a program captured by itself, by traces of their captures (`perfkit.programs.graphs`).

A capture launches in the order of the graph's nodes, and a graph of one stream runs in that order. So the nth activity
of a replay is the nth launch of its capture, and has that launch's operator, module, pass and work. A graph is left
alone where that is not certain: where streams wait for each other in the capture, where the numbers or kinds of
launches differ, or where an operator's kernels are not of its family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.cost import CostModel
from perfkit.errors import InputError
from perfkit.readers.columns import Booleans, Coded, Integers
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
from perfkit.readers.kineto.measure.calls import KindOfCall
from perfkit.readers.kineto.measure.rows import on_device, wanted
from perfkit.readers.kineto.measure.work import owners
from perfkit.readers.kineto.place.columns import of_events, place
from perfkit.readers.kineto.place.launches import Launches
from perfkit.readers.own_ranges import GRAPH
from perfkit.run_folder import DeclaredKernel
from perfkit.tree.placement import CAPTURE, Placement

_BEGIN, _END = "StreamBeginCapture", "StreamEndCapture"
_FORKS = ("StreamWaitEvent",)  # in a capture: nodes beside each other
# Families whose kernels have names of their own: those of the kernels that such operators may have.
_TELLING = {"matmul": ("matmul",), "attention": ("attention",), "convolution": ("convolution", "matmul", "fft")}
_COLUMNS = ("pass", "module", "operator", "placed_by")


@dataclass(frozen=True)
class Capture:
    """The launches of one capture in order: their `kind` as activities have it, the place `columns` of each, and the
    call that it works for, an index into `calls` (−1: of unknown work). `family` is that of each call's operator."""

    kind: Integers
    columns: Mapping[str, Coded]
    call: Integers
    calls: Sequence[KindOfCall]
    family: Any


@dataclass(frozen=True)
class Replayed:
    """For each activity the capture that its replay is of, the launch in it, and the replay (−1 for none)."""

    captures: Sequence[Capture]
    capture: Integers
    launch: Integers
    replay: Integers

    @property
    def placed(self) -> Booleans:
        """Which activities have a launch."""
        return self.launch >= 0


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
    host, placed = events.host, place(events.host, events.device)
    launches = _launches(host)
    if launches is None:
        return None
    rows = on_device(host, placed.places.wrapper, costs, declared, matmul_precision)
    owner = owners(host, rows, launches)
    calls, call = np.unique(owner[owner >= 0], return_inverse=True)
    of_launch = np.full(len(launches), -1, np.int64)
    of_launch[owner >= 0] = call
    operator = host.nearest(host.category == OPERATOR)[launches]
    columns = of_events(host, placed.places, np.where(operator >= 0, operator, launches))
    names = [host.names[code] for code in host.name[calls].tolist()]
    return Capture(
        kind=np.array([_kind_of(host.names[code]) for code in host.name[launches].tolist()], np.int64),
        columns={name: columns[name] for name in _COLUMNS},
        call=of_launch,
        calls=[rows.kinds[kind] for kind in rows.kind[calls].tolist()],
        family=np.array([costs.family(name) for name in names], object),
    )


def _launches(host: HostEvents) -> Integers | None:
    """The calls that made the nodes of the graph, in order; None where they fork, or where no capture was recorded."""
    runtime = host.category == RUNTIME
    begin = np.flatnonzero(runtime & host.named([name.endswith(_BEGIN) for name in host.names]))
    end = np.flatnonzero(runtime & host.named([name.endswith(_END) for name in host.names]))
    if not len(begin) or not len(end):
        return None
    inside = runtime & (host.start >= host.end[begin].min()) & (host.end <= host.start[end].max())
    if (inside & host.named([name.endswith(_FORKS) for name in host.names])).any():
        return None
    found = np.flatnonzero(inside & host.named([_kind_of(name) >= 0 for name in host.names]))
    return found[np.argsort(host.start[found], kind="stable")]


def _kind_of(call: str) -> int:
    """The kind of activity that a runtime or driver call starts, −1 for none."""
    if "Launch" in call and "GraphLaunch" not in call and "HostFunc" not in call:
        return KERNEL
    return COPY if "Memcpy" in call else FILL if "Memset" in call else -1


def find_replayed(
    host: HostEvents, device: DeviceEvents, launches: Launches, captures: Mapping[int, Capture], costs: CostModel
) -> Replayed | None:
    """Which launch of which capture each activity is that a replay ran; None where there are none."""
    replayed = np.flatnonzero(launches.replayed)
    if not captures or not len(replayed):
        return None
    numbers = sorted(captures)
    number_of = {f"{GRAPH}{number}": at for at, number in enumerate(numbers)}
    of_name = np.array([number_of.get(name, -1) for name in host.names], np.int64)
    around = host.nearest((host.category == ANNOTATION) & host.named(of_name >= 0))
    families = np.array([costs.family(name) for name in device.names], object)
    capture, launch, replay = (np.full(len(device), -1, np.int64) for _ in range(3))
    order = replayed[np.lexsort((device.start[replayed], launches.call[replayed]))]
    for one in np.split(order, np.flatnonzero(np.diff(launches.call[order])) + 1):
        call = int(launches.call[one[0]])
        at = int(of_name[host.name[around[call]]]) if around[call] >= 0 else -1
        if at >= 0 and _fits(captures[numbers[at]], device.kind[one], families[device.name[one]]):
            capture[one], launch[one], replay[one] = at, np.arange(len(one)), call
    return Replayed([captures[number] for number in numbers], capture, launch, replay)


def _fits(capture: Capture, kinds: Integers, families: Any) -> bool:
    """Whether what a replay ran, of these kinds and families, may be what the capture launched, one by one."""
    if not np.array_equal(capture.kind, kinds):
        return False
    known = np.flatnonzero(capture.call >= 0)
    wanted_of = capture.family[capture.call[known]]
    for family, may_be in _TELLING.items():
        mine = wanted_of == family
        right = mine & np.isin(families[known].astype(str), may_be)
        if not np.isin(capture.call[known][mine], capture.call[known][right]).all():
            return False
    return True


def placement(found: Replayed | None, rows: int) -> list[Placement]:
    """What captures say of the places of all `rows` activities."""
    if found is None or not found.placed.any():
        return []
    columns = {}
    for name in _COLUMNS:
        each = [capture.columns[name] for capture in found.captures]
        words = [word for column in each for word in column.words]
        starts = np.cumsum([0, *(len(column.words) for column in each)])
        code = np.full(rows, -1, np.int64)
        for number, column in enumerate(each):
            mine = found.capture == number
            own = np.asarray(column.code)[found.launch[mine]]
            code[mine] = np.where(own >= 0, own + starts[number], -1)
        columns[name] = Coded(words, code)
    return [Placement(CAPTURE, columns)]
