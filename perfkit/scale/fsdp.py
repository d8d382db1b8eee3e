"""The schedule of FSDP2: which unit is gathered, computed and reduced when.

Forward: the unit after the next is not gathered before the next one was copied out of its gathered buffer. Backward: at
a unit's beginning the one before it is gathered, at its end its gradients are reduced; the end of the unit before waits
until that is done. The root, which holds everything outside the blocks, is gathered once and reduced last.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from perfkit.profile_names import BACKWARD, FORWARD, OPTIMIZER
from perfkit.scale.lane import Lane, PredictedStep
from perfkit.scale.links import Network
from perfkit.scale.one_rank import ROOT, OneRank, unit_of
from perfkit.scale.work import RankWork, work

# Extra time of the host in a step for the hooks of a unit, and for a DTensor parameter in the optimizer. With
# torch 2.11 hosts of two H200 took 3 ms and 0.1 ms, those of two H100 4 ms and 0.06 ms.
UNIT_HOST_NS, PARAMETER_HOST_NS = 3e6, 0.1e6

# Extra time of the host for each gathering compared with a group of one, which since torch 2.9 gathers nothing
# (pytorch#160135): 97 events and 1.2 ms more a unit, gathered twice, on two H100 with torch 2.11.
GATHER_HOST_NS = 0.6e6


def fsdp(one: OneRank, network: Network, ranks: int, share: float) -> PredictedStep:
    """Parameters are gathered before each unit, in both passes, and gradients reduced after it."""
    return _Simulated(work(one, share, 1 / ranks), network, ranks).step()


class _Simulated:
    def __init__(self, made: RankWork, network: Network, ranks: int) -> None:
        self._work, self._lane, self._ranks = made, Lane(network, ranks), ranks
        one = made.one
        self._wide = 2.0 if one.manifest.settings.dtype in ("bf16", "fp8") else 1.0  # of a gradient where it is reduced
        self._gathered: dict[int, float] = {}
        self._reduced: dict[int, float] = {}
        present = {row.unit for row in made.rows if row.phase == FORWARD}
        for parameter in one.parameters:
            unit = unit_of(parameter.name, one.rows)
            unit = unit if unit in present else ROOT
            self._gathered[unit] = self._gathered.get(unit, 0.0) + parameter.bytes
            if parameter.trained:
                self._reduced[unit] = self._reduced.get(unit, 0.0) + parameter.bytes
        self.clock = self.added = self._host_ns = 0.0
        self._gathers = 0

    def step(self) -> PredictedStep:
        """Run forward, backward and optimizer."""
        copied = [self._copied_out(ROOT, self._gather(ROOT, 0.0))]
        self._forward(copied)
        self._backward(copied[-1])
        self._reduce(ROOT)
        self.clock = max(self.clock, self._lane.free)
        self.clock += sum(row.ns + row.gap for row in self._work.rows if row.phase == OPTIMIZER)
        compute = self._work.ns
        self._host()
        exposed = self.clock - compute - self.added if self._work.one.on_gpu else self._lane.total
        return PredictedStep(compute, self.added, self._lane.total, max(exposed, 0.0), self._lane.bytes, self._host_ns)

    def _host(self) -> None:
        """Add the host's work for units and sharded parameters: all of it on a CPU, on a GPU what exceeds the step."""
        one = self._work.one
        if not one.way:
            trained = sum(parameter.trained for parameter in one.parameters)
            host = len(self._gathered) * UNIT_HOST_NS + trained * PARAMETER_HOST_NS
        elif one.gathered:  # the measured step has it all
            return
        else:
            host = self._gathers * GATHER_HOST_NS
        if one.on_gpu:
            host = max((one.host_ns or 0.0) + host - self.clock, 0.0)
        self._host_ns = host
        self.added += host
        self.clock += host

    def _forward(self, copied: list[float]) -> None:
        seen: set[int] = set()
        for unit, ns in self._segments(FORWARD):
            if unit != ROOT and unit not in seen:
                seen.add(unit)
                there = self._gather(unit, copied[-2] if len(copied) > 1 else copied[-1])
                copied.append(self._copied_out(unit, there))
            self.clock += ns

    def _backward(self, begins: float) -> None:
        """Units in the order of their backward; the first one's gathering was begun as backward did."""
        segments = list(self._segments(BACKWARD))
        order = list(dict.fromkeys(unit for unit, _ in segments if unit != ROOT))
        last = {unit: index for index, (unit, _) in enumerate(segments)}
        there = {order[0]: self._gather(order[0], begins)} if order else {}
        started: set[int] = set()
        reduced = 0.0
        for index, (unit, ns) in enumerate(segments):
            if unit != ROOT and unit not in started:
                started.add(unit)
                self._copied_out(unit, there[unit])
                if len(started) < len(order):
                    following = order[len(started)]
                    there[following] = self._gather(following, self.clock)
            self.clock += ns
            if unit != ROOT and last[unit] == index:
                self.clock = max(self.clock, reduced)
                reduced = self._reduce(unit)

    def _segments(self, phase: str) -> Iterator[tuple[int, float]]:
        rows = (row for row in self._work.rows if row.phase == phase)
        for unit, some in groupby(rows, key=lambda row: row.unit if row.unit in self._gathered else ROOT):
            yield unit, sum(row.ns + row.gap for row in some)

    def _gather(self, unit: int, from_ns: float) -> float:
        self._gathers += 1
        return self._lane.run("all_gather", self._gathered.get(unit, 0.0), from_ns)

    def _copied_out(self, unit: int, there: float) -> float:
        """Wait for a gathered unit and copy its parameters out; when that is done."""
        took = self._work.moved_ns(2 * self._gathered.get(unit, 0.0))
        self.added += took
        self.clock = max(self.clock, there) + took
        return self.clock

    def _reduce(self, unit: int) -> float:
        """Copy a unit's gradients together, and begin to reduce them; when that is done."""
        amount = self._reduced.get(unit, 0.0)
        took = self._work.moved_ns(amount * (1 + self._wide))
        self.added += took
        self.clock += took
        return self._lane.run("reduce_scatter", amount * self._wide, self.clock)
