"""Calls of one kind in a trace of torch.profiler: their arguments, and how long the trace says that they took.

An operator on a GPU takes the time of all kernels that it, or an operator inside it, launched; on a CPU its own
duration with all that is inside. Needs no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from perfkit import readers
from perfkit.analysis.report import aggregate
from perfkit.analysis.report.rows import in_steps, rows_of
from perfkit.analysis.results import Group
from perfkit.columns import Booleans, Integers
from perfkit.errors import InputError, UsageError
from perfkit.readers.kineto.attribution.columns import Placed, place
from perfkit.readers.kineto.decode.builder import decoded
from perfkit.readers.kineto.decode.events import OPERATOR, HostEvents, Key
from perfkit.readers.kineto.decode.read import read_events
from perfkit.readers.kineto.decode.typed import collector_off
from perfkit.readers.kineto.measure.calls import usual_dtype
from perfkit.readers.kineto.recorded import trace_paths
from perfkit.table import KernelTable

FIELDS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
_LISTED = 6  # operators or modules that a message names
_COLLECTIVE = re.compile(r"^(c10d|nccl|gloo|mpi|c10d_functional|_c10d_functional)(::|:)|^record_param_comms$")
RECORD = "Give one by name with --operator aten::addmm."


@dataclass(frozen=True)
class OperatorCalls:
    """Calls of one operator with the same arguments: how long each took in ns, and what they launched.

    `others` is the number of further kinds of calls that were asked for, which took less time together.
    """

    operator: str
    arguments: Mapping[str, Any]
    key: Key
    ns: list[float]
    kernels: list[str] = field(default_factory=list)
    module: str = ""
    pass_: str = ""
    others: int = 0


@dataclass(frozen=True)
class FoundOperator:
    """An operator that was asked for in a trace, as `levels`: what launched the kernels, then the operators around it.

    `device` is the trace's name of the device, "" where it has none. `list_dtype` is perfkit's name of the dtype that
    most of the trace's tensors have: that of a list of tensors is not recorded.
    """

    trace: Path
    device: str
    on_gpu: bool
    levels: list[OperatorCalls]
    list_dtype: str


class TraceTable:
    """A trace with its kernel table. Raises `InputError` for any other file."""

    def __init__(self, path: Path) -> None:
        self.table, self.path = _table_of(path)
        with collector_off():
            self.events = read_events(self.path, lambda name: True)
            self.placed: Placed = place(self.events.host, self.events.device)
        self.on_gpu = self.placed.launches is not None
        if not len(self.events.host):
            raise InputError(f"{path} holds no operators of the host.", "Record it with torch.profiler on the CPU too.")

    @property
    def host(self) -> HostEvents:
        """The events of the host."""
        return self.events.host

    def kernel_rows(self, number: int) -> tuple[str, Integers]:
        """Name and positions of the rows in the `number`-th line of the report's kernel table, counted from 1."""
        groups, codes, index = self._kinds
        if not 1 <= number <= len(groups):
            raise UsageError(f"--kernel {number}: the kernel table has {len(groups)} rows.", "They count from 1.")
        return groups[number - 1].key, index[codes == number - 1]

    def kernel_groups(self) -> list[Group]:
        """The report's kernel table, the longest first."""
        return self._kinds[0]

    @cached_property
    def _kinds(self) -> tuple[list[Group], Integers, Integers]:
        """The lines of the kernel table, the line of each row that counts, and its position in the whole table."""
        frame = in_steps(self.table)
        return *aggregate.by_kind_of_call(rows_of(frame, None, self.table)), np.asarray(frame.index)

    def by_kernel(self, number: int) -> FoundOperator:
        """Return the operator that launched most of the time of a line of the kernel table.

        Raises `UsageError` where there is no such line, `InputError` where no operator of the trace launched it.
        """
        name, rows = self.kernel_rows(number)
        events = self._launched_by(rows)
        events = events[events >= 0]
        if not len(events):
            raise InputError(f"Kernel {number}, {name}, was launched by no operator that the trace records.", RECORD)
        self._refuse_collective(self.host.names[self.host.name[events[0]]], f"Kernel {number}")
        return self._found(np.unique(events))

    def _launched_by(self, rows: Integers) -> Integers:
        """The operator that launched, or is, each row; −1 for none."""
        launches = self.placed.launches
        if launches is not None:
            if len(self.table) != len(launches.operator):
                raise InputError(f"{self.path} is not the trace of its kernel table.", "Give the trace itself.")
            return launches.operator[rows]
        frame, host = self.table.frame.loc[rows], self.host
        at = {(int(s), host.names[n]): i for i, (s, n) in enumerate(zip(host.start, host.name, strict=True))}
        pairs = zip(frame["start_ns"], frame["name"], strict=True)
        return np.array([at.get((int(start), name), -1) for start, name in pairs], np.int64)

    def by_operator(self, name: str, module: str) -> FoundOperator:
        """Return the calls of an operator, in a module where one is given, that took the most time.

        Raises `UsageError` where the trace has none.
        """
        full = name if "::" in name else f"aten::{name}"
        self._refuse_collective(full, f"--operator {name}")
        host = self.host
        named = host.named([other in (name, full) for other in host.names]) & (host.category == OPERATOR)
        if not named.any():
            known = ", ".join(self._usual())
            raise UsageError(f"--operator {name}: the trace has no such operator.", f"Most time take {known}.")
        inside = named & self._in_module(module) if module else named
        if not inside.any():
            raise UsageError(f"--module {module}: {name} is not in it.", self._modules_of(named))
        outermost = inside.copy()
        around = np.where(host.parent >= 0, host.nearest(inside)[np.maximum(host.parent, 0)], -1)
        outermost[around >= 0] = False
        return self._found(np.flatnonzero(outermost), climb=False)

    def _usual(self) -> list[str]:
        """The operators that take the most time."""
        launches = self.placed.launches
        if launches is None:
            return [str(n) for n in self.table.frame.groupby("name")["duration_ns"].sum().nlargest(_LISTED).index]
        own = launches.operator >= 0
        time = np.bincount(
            self.host.name[launches.operator[own]],
            weights=(self.events.device.end - self.events.device.start)[own],
            minlength=len(self.host.names),
        )
        return [self.host.names[i] for i in np.argsort(-time)[:_LISTED].tolist() if time[i] > 0]

    def _in_module(self, module: str) -> Booleans:
        """For each event whether it is in a module whose path has `module` among its parts, next to each other."""
        wanted = f".{module.strip('.')}."
        fits = np.array([*(wanted in f".{name}." for name in self.placed.places.module_names), False])
        return fits[self.placed.places.module]

    def _modules_of(self, chosen: Booleans) -> str:
        names = self.placed.places.module_names
        codes = np.unique(self.placed.places.module[chosen]).tolist()
        there = [names[code] for code in codes if code >= 0]
        more = f" and {len(there) - _LISTED} more" if len(there) > _LISTED else ""
        return f"It is in {', '.join(there[:_LISTED])}{more}." if there else "The trace does not say which it is in."

    def _refuse_collective(self, name: str, asked: str) -> None:
        if _COLLECTIVE.match(name):
            raise InputError(
                f"{asked} is a collective ({name}), which one process cannot run alone.",
                "`perfkit report` on the traces of all ranks shows what it waits for.",
            )

    def _found(self, events: Integers, climb: bool = True) -> FoundOperator:
        levels = []
        for chosen in self._levels(events) if climb else [events]:
            levels.append(self._calls(chosen))
        usual = usual_dtype(self.host.calls)
        return FoundOperator(self.path, self._device(), self.on_gpu, levels, usual)

    def _levels(self, events: Integers) -> Iterator[Integers]:
        """The events, then the operators around them, outwards as far as they go on."""
        host = self.host
        while len(events):
            yield events
            above = np.unique(host.parent[events])
            above = above[above >= 0]
            wanted = (host.category[above] == OPERATOR) & ~self.placed.places.wrapper[above]
            wanted &= np.array(["::" in host.names[n] for n in host.name[above].tolist()], bool)
            events = above[wanted]

    def _calls(self, events: Integers) -> OperatorCalls:
        """The kind of call among `events` that takes the most time."""
        host = self.host
        launched = self._launches_inside(events)
        time = {e: float(sum(ns for ns, _ in launched[e])) for e in launched}
        if not self.on_gpu:
            time = {e: float(host.end[e] - host.start[e]) for e in events.tolist()}
        kinds: dict[tuple[int, int], list[int]] = {}
        for event in time:
            kinds.setdefault((int(host.name[event]), int(host.call[event])), []).append(event)
        if not kinds:
            name = host.names[host.name[events[0]]]
            raise InputError(f"{name} launched nothing in this trace.", "Choose an operator that does work.")
        chosen = max(kinds.values(), key=lambda mine: sum(time[e] for e in mine))
        first = chosen[0]
        code = int(host.call[first])
        key = host.calls[code] if code >= 0 else (host.names[host.name[first]], b"", b"", b"", b"")
        kernels = dict.fromkeys(name for e in chosen for _, name in sorted(launched.get(e, ()), reverse=True))
        return OperatorCalls(
            operator=key[0],
            arguments={name: decoded(text) for name, text in zip(FIELDS, key[1:], strict=True) if text},
            key=key,
            ns=[time[e] for e in chosen if time[e] > 0],
            kernels=list(kernels),
            module=self._word(self.placed.places.module_names, self.placed.places.module[first]),
            pass_=self._word(self.placed.places.pass_names, self.placed.places.pass_[first]),
            others=len(kinds) - 1,
        )

    @staticmethod
    def _word(words: Sequence[str], code: int) -> str:
        return words[code] if code >= 0 else ""

    def _launches_inside(self, events: Integers) -> dict[int, list[tuple[float, str]]]:
        """Time and name of every activity that each of `events`, or an operator inside it, launched."""
        launches, device = self.placed.launches, self.events.device
        found: dict[int, list[tuple[float, str]]] = {}
        if launches is None:
            return found
        chosen = np.zeros(len(self.host), bool)
        chosen[events] = True
        around = self.host.nearest(chosen)
        owner = np.where(launches.call >= 0, around[np.maximum(launches.call, 0)], -1)
        for i in np.flatnonzero(owner >= 0).tolist():
            ns = float(device.end[i] - device.start[i])
            found.setdefault(int(owner[i]), []).append((ns, device.names[device.name[i]]))
        return found

    def _device(self) -> str:
        """The name of the GPU that worked, where the trace has one."""
        if not self.on_gpu:
            return ""
        numbers = self.events.device.device
        used = int(np.bincount(numbers[numbers >= 0]).argmax()) if (numbers >= 0).any() else -1
        names = {one.get("id"): one.get("name") for one in self.events.about.devices if isinstance(one, dict)}
        name = names.get(used)
        return name if isinstance(name, str) else ""


def _table_of(path: Path) -> tuple[KernelTable, Path]:
    """The kernel table and the trace of a profile, or of the only backend of a run that has one."""
    source = readers.read(path)
    traces = {name: trace for name, trace in trace_paths(source).items() if trace is not None}
    if len(traces) != 1:
        several = f"{path} has the traces of {', '.join(traces)}." if traces else f"{path} has no torch.profiler trace."
        first = next(iter(traces.values()), None)
        raise InputError(several, f"Give one of them: {first}" if first else "Record one: `perfkit capture`.")
    ((name, trace),) = traces.items()
    return readers.tables_of(source)[name], trace
