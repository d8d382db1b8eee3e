"""Everything that is measured of placed events: the rows of the table with their work, and its facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.columns import Coded, Integers
from perfkit.cost import CostModel, TensorSpec
from perfkit.engines import iteration_of
from perfkit.numbers import unique
from perfkit.profile_names import LOADER
from perfkit.readers.kineto.attribution.call_sites import find_call_sites, sources_of
from perfkit.readers.kineto.attribution.columns import Placed, of_activities, of_operators
from perfkit.readers.kineto.attribution.gpu_steps import GpuSteps, Launches
from perfkit.readers.kineto.decode.read import TraceContent
from perfkit.readers.kineto.measure import (
    captured,
    cpu,
    engine_captures,
    foreach,
    gaps,
    generated,
    gpu,
    gpu_time,
    idle,
    stalls,
)
from perfkit.readers.kineto.measure.collectives import about, messages_of, only_group
from perfkit.readers.kineto.measure.cpu import events_of
from perfkit.readers.kineto.measure.gaps import StepGaps
from perfkit.readers.kineto.measure.own import with_registered
from perfkit.readers.kineto.measure.rows import launching_only, on_device
from perfkit.readers.kineto.measure.settle import choose
from perfkit.run_folder import DeclaredKernel
from perfkit.tree.shares import CallSite


@dataclass(frozen=True)
class TraceContext:
    """Knowledge besides the trace: costs of operators, the work of generated kernels by their name in the trace,
    the precision of products, what recording one event costs in ns (None: no estimate), the calls of compiled graphs,
    what each group of the optimizer steps, and traces of the captures of CUDA graphs by the number in their range."""

    costs: CostModel
    declared: Mapping[str, DeclaredKernel]
    matmul_precision: str
    event_cost_ns: float | None
    call_sites: Sequence[Sequence[CallSite]]
    stepped: Sequence[Sequence[TensorSpec]]
    captures: Mapping[int, Path]
    lines: Path | None = None  # the trace of a step whose source lines are marked
    trace: Path | None = None  # the trace itself, next to which an engine's captures may be

    def reads(self, name: str) -> bool:
        """Return whether an operator reads a value; one that waits for a collective does not."""
        return self.costs.kind(name) == "sync" and self.costs.family(name) != "collective"


@dataclass(frozen=True)
class MeasuredTrace:
    """Columns of the table but for those that `perfkit.readers.finish` adds, facts, what could not be placed, the host
    event that each row is or was launched by (−1: unknown), how many activities of replays the captures of their
    graphs show, and the line of the model of each row of compiled code, as `file|line|function`."""

    columns: dict[str, Any]
    facts: dict[str, Any]
    unplaced: list[str]
    launched: Integers
    captured: int = 0
    sources: Coded | None = None


def measure(events: TraceContent, placed: Placed, known: TraceContext) -> MeasuredTrace:
    """Measure `events`: by activities of a GPU where there are any, else by operators on the CPU."""
    if placed.launches is None or placed.on_gpu is None:
        return _operators(events, placed, known)
    return _activities(events, placed, placed.launches, placed.on_gpu, known)


def _operators(events: TraceContent, placed: Placed, known: TraceContext) -> MeasuredTrace:
    """Rows and facts of a trace without a GPU."""
    host, places, unplaced = events.host, placed.places, list[str]()
    rows = choose(host, places.wrapper, known.costs, known.declared, known.matmul_precision)
    foreach.complete_recorded(host, places, rows, known.costs, known.stepped)
    located = find_call_sites(host, known.call_sites, None, None) if known.call_sites else None
    if located is not None:
        generated.complete(host, rows, located, known.declared)
    chosen = events_of(host, rows)
    columns = cpu.columns(host, rows, chosen) | of_operators(host, placed, chosen, located, unplaced)
    accounting = gaps.account(host, placed.steps, places, rows, known.event_cost_ns)
    facts = _facts(events, placed, known, accounting)
    facts |= cpu.facts(host, placed.steps, only_group(facts))
    return MeasuredTrace(columns, facts, unplaced, chosen, sources=sources_of(located, chosen) if located else None)


def _rank(events: TraceContent) -> tuple[int, int]:
    """The rank of a trace, and the number of ranks; of one process alone 0 of 1."""
    rank, ranks = (events.about.distributed.get(name) for name in ("rank", "world_size"))
    if isinstance(rank, int) and isinstance(ranks, int) and 0 <= rank < ranks:
        return rank, ranks
    return 0, 1


def _activities(
    events: TraceContent, placed: Placed, launches: Launches, on_gpu: GpuSteps, known: TraceContext
) -> MeasuredTrace:
    """Rows and facts of a trace with work on a GPU."""
    host, device, places, steps, unplaced = events.host, events.device, placed.places, placed.steps, list[str]()
    rows = on_device(host, places.wrapper, known.costs, known.declared, known.matmul_precision)
    foreach.complete(host, device, places, rows, launches.call, known.costs, _rank(events))
    messages = messages_of(host, device, launches.call)
    located = find_call_sites(host, known.call_sites, device, launches) if known.call_sites else None
    if located is not None:
        generated.complete(host, rows, located, known.declared)
    working, owner, replays = rows, np.full(len(device), -1, np.int64), None
    if launches.replayed.any():
        replays = _replays(events, launches, known)
        working, owner = generated.with_replays(rows, device, launches.replayed, located, known.declared, replays)
    if known.costs.own:
        working, owner = with_registered(working, owner, host, device, launches, known.costs)
    columns = gpu.columns(host, device, working, launches, owner, messages)
    if replays is not None:
        columns["shapes"] = replays.described(columns["shapes"])
    placements = replays.placement() if replays is not None else []
    if placements and any(map(iteration_of, steps.names)):
        placements = captured.without_passes(placements)
    columns |= of_activities(host, device, placed, launches, located, unplaced, placements)
    rows = launching_only(rows)
    accounting = idle.account(host, device, steps, on_gpu, places, rows, launches.call, known.event_cost_ns)
    facts = _facts(events, placed, known, accounting, launches.call)
    facts |= gpu_time.facts(host, device, steps, on_gpu, facts["gaps"], launches, messages, events.about.devices)
    if launches.replayed.any():
        facts["replays"] = {
            "launches": len(unique(launches.call[launches.replayed])),
            "activities": int(launches.replayed.sum()),
        }
    captures_show = int(replays.placed.sum()) if replays is not None else 0
    sources = sources_of(located, launches.around) if located else None
    return MeasuredTrace(columns, facts, unplaced, launches.around, captures_show, sources)


def _replays(events: TraceContent, launches: Launches, known: TraceContext) -> captured.ReplayedActivities | None:
    """Return what captures of CUDA graphs say of each activity of a replay: perfkit's captures, else an engine's."""
    host, device, costs, declared = events.host, events.device, known.costs, known.declared
    captures = captured.read_captures(known.captures, costs, declared, known.matmul_precision)
    return captured.find_replayed(host, device, launches, captures, costs) or engine_captures.find(
        host, device, launches, known.trace, costs, declared, known.matmul_precision
    )


def _facts(
    events: TraceContent, placed: Placed, known: TraceContext, accounting: StepGaps, launch: Integers | None = None
) -> dict[str, Any]:
    """The facts of every trace; `launch` is the host event that launched each activity."""
    host, device = events.host, events.device
    facts = accounting.facts() | about(events, placed) | {"marked": placed.steps.marked}
    facts |= stalls.facts(host, device, placed.steps, placed.places, launch, known.reads)
    facts["loader_workers"] = any(name.startswith(f"{LOADER}#_MultiProcessing") for name in host.names)
    if known.event_cost_ns is not None:
        facts["profiler_estimate"] = {"event_cost_ns": known.event_cost_ns, "events": accounting.recorded}
    if loops := {name: kernel.loops for name, kernel in known.declared.items() if kernel.loops}:
        facts["loops"] = loops
    return facts
