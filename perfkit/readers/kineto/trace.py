"""torch.profiler (Kineto) traces → kernel table, in three parts that data crosses once: decode, place, measure.

On a CPU a row is one execution of a working operator; where the trace holds GPU activity a row is a kernel, copy or
fill, placed by the operator that launched it. docs/numbers.md says how self time, place and gaps are worked out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from perfkit import table
from perfkit.columns import Coded, integers
from perfkit.cost import CostModel, TensorSpec
from perfkit.readers.finish import finish, hidden, uncosted
from perfkit.readers.kineto import checks
from perfkit.readers.kineto.attribution.call_sites import PROVENANCE
from perfkit.readers.kineto.attribution.columns import Placed, place
from perfkit.readers.kineto.attribution.gpu_steps import Launches
from perfkit.readers.kineto.decode.read import TraceContent, read_events
from perfkit.readers.kineto.decode.typed import collector_off
from perfkit.readers.kineto.measure.collectives import rank_of
from perfkit.readers.kineto.measure.measure import MeasuredTrace, TraceContext, measure
from perfkit.readers.kineto.measure.rows import wanted
from perfkit.readers.kineto.recorded import RecordedTrace
from perfkit.run_folder import DeclaredKernel
from perfkit.tree.shares import CallSite

if TYPE_CHECKING:
    from perfkit.readers.counters import Track

READER = "kineto"
_UNNAMED = "unknown"  # PyTorch's word for a name that it does not export


def read_trace(
    path: Path,
    *,
    costs: CostModel | None = None,
    passes: Mapping[str, tuple[str, ...]] | None = None,
    layers: str = "",
    declared: Mapping[str, DeclaredKernel] | None = None,
    matmul_precision: str = "fp32",
    event_cost_ns: float | None = None,
    call_sites: Sequence[Sequence[CallSite]] = (),
    stepped: Sequence[Sequence[TensorSpec]] = (),
    captures: Mapping[int, Path] | None = None,
    lines: Path | None = None,
    expected: checks.Expected | None = None,
    whole: bool = False,
) -> table.KernelTable:
    """Read the trace at `path` (JSON, plain or gzip) into a kernel table.

    `passes` maps passes of the workload to module patterns (forward work in a module that matches none stays in
    "forward"), `layers` is the module pattern of the repeated blocks. `declared` holds the work of generated kernels by
    the name they have in the trace; `event_cost_ns` is what recording one event costs, for the estimate of the
    profiler's own share of the gaps; `call_sites` says what the calls of compiled graphs serve, `stepped` what each
    group of the optimizer steps, for a profiler leaves long lists out; `captures` are traces of the captures of CUDA
    graphs, by the number in the range around their replays (`perfkit:graph:0`); `lines` is the trace of a step whose
    source lines are marked, for a trace that holds no stacks.
    `facts` of the table hold steps, step_ns, busy_ns, gaps, events, trace_checks. `expected` is what a capture of
    perfkit's own knows of its trace. With `whole` the table keeps what else the trace holds (`RecordedTrace`).
    Raises `InputError` for a file that is missing, damaged or no trace, `UnusableProfile` for one that fails a check
    which its numbers need.
    """
    path = Path(path)
    known = TraceContext(
        costs or CostModel(),
        declared or {},
        matmul_precision,
        event_cost_ns,
        call_sites,
        stepped,
        captures or {},
        lines,
        path,
    )
    with collector_off():
        columns, facts, warnings, recorded, tracks = _measured(path, known, expected, whole, layers)
        names, shapes = columns["name"], columns["shapes"]
        # By now the events are gone: of a large trace they take as much memory as the table.
        if (rank := rank_of(facts)) is not None:
            columns["rank"] = integers(np.full(len(columns["step"]), rank))
        finish(columns, known.costs, known.declared, passes or {}, layers)
        counted = columns["duration_ns"].copy()
        if facts.get("before_capture", {}).get("activities"):
            counted[columns["step"].isna()] = np.nan
        warnings += known.costs.problems.values()
        warnings += uncosted({**columns, "name": names, "duration_ns": counted}) + hidden(shapes, counted)
        built = table.build(columns, warnings, {"path": str(path), "reader": READER}, facts)
        built.recorded = recorded
        if tracks:
            from perfkit.readers import counters

            counters.add(tracks, built)
        return built


def _measured(
    path: Path, known: TraceContext, expected: checks.Expected | None, whole: bool, layers: str
) -> tuple[dict[str, Any], dict[str, Any], list[str], dict[str, RecordedTrace], list[Track]]:
    """Return columns, facts, warnings, with `whole` what else the trace holds, and counters. Raises
    `UnusableProfile`."""
    with _with_arguments(path) as (text, remark):
        events = read_events(text, wanted(known.costs, known.declared))
    placed = place(events.host, events.device)
    found = measure(events, placed, known)
    found.facts["marked"] = bool(placed.steps.marked)
    evidence = checks.Evidence(
        events.host, events.device, placed.steps, placed.launch, placed.on_gpu, found.facts, expected
    )
    checked = checks.run(evidence)
    checks.refuse(path, checked)
    found.facts["trace_checks"] = msgspec.to_builtins([check for check, _ in checked])
    said = [check.sentence for check, _ in checked if check.sentence]
    if known.lines or events.host.tells_frames:
        from perfkit.readers.kineto.lines.find import TraceLines

        source = TraceLines(events, placed, known.lines)
        source.add(found.columns, found.facts, found.launched, known.reads, found.sources)
        said += [source.problem] if source.problem else []
    said += [remark] if remark else []
    warnings = events.about.warnings() + found.unplaced + _warnings(events, placed, found) + said
    if len(events.memory):
        from perfkit.readers.kineto.holders import holders

        found.facts["memory"] = msgspec.to_builtins(holders(events, placed, layers))
    return found.columns, found.facts, warnings, _recorded(events, placed, path) if whole else {}, events.counters


def _with_arguments(path: Path) -> AbstractContextManager[tuple[Path, str]]:
    """The trace with the arguments of an Execution Trace next to it, and a sentence where there is one."""
    if next(path.parent.glob("*.json"), None) is None:
        return nullcontext((path, ""))
    from perfkit.readers.kineto import execution_trace

    return execution_trace.joined(path)


def _recorded(events: TraceContent, placed: Placed, path: Path) -> dict[str, RecordedTrace]:
    """What a page shows of a trace next to its table."""
    from perfkit.readers.kineto.recorded import RecordedTrace

    return {"profile": RecordedTrace.of(events, placed.launch, path)}


def _warnings(events: TraceContent, placed: Placed, measured: MeasuredTrace) -> list[str]:
    """Return what a person must know to read the table rightly."""
    host, marked, columns, found = events.host, placed.steps.marked, measured.columns, list[str]()
    if not len(host) and not len(events.device):
        found.append("the trace holds no operators and no kernels")
    if not marked and len(host):
        found.append("the trace marks no steps: the whole capture counts as one step")
    if host.clipped:
        found.append(f"{host.clipped} events outlast the event around them and were cut to it")
    if unnamed := int(host.named([name == _UNNAMED for name in host.names]).sum()):
        called = "1 event is" if unnamed == 1 else f"{unnamed} events are"
        found.append(
            f'{called} called "{_UNNAMED}": PyTorch exports no name with a character outside printable ASCII; '
            "give these ranges, modules or functions names in ASCII to see them apart"
        )
    if placed.steps.evidence:
        found.append(f"the trace marks no steps: {len(placed.steps.start)} are evident, {placed.steps.evidence}")
    before = int(placed.on_gpu.before.sum()) if placed.on_gpu is not None else 0
    outside = int((columns["step"] < 0).sum()) - before
    if outside and len(host):
        where = "marked steps" if marked else "recorded calls"
        words = f"1 row outside the {where} counts" if outside == 1 else f"{outside} rows outside the {where} count"
        found.append(f"{words} in none")
    if placed.launches is not None:
        found += _graph_warnings(placed.launches, columns["placed_by"], measured.captured)
    return found


def _graph_warnings(launched: Launches, placed_by: Coded, captured: int) -> list[str]:
    """Return what the trace lacks about the work of CUDA graphs; `captured` of their activities have their
    capture's."""
    if not launched.replayed.any():
        return []
    replays = len(set(launched.call[launched.replayed].tolist()))
    times = "1 CUDA graph launch" if replays == 1 else f"{replays} CUDA graph launches"
    compiled = launched.replayed & np.array([*(word == PROVENANCE for word in placed_by.words), False])[placed_by.code]
    count, of = int(launched.replayed.sum()), int(compiled.sum())
    said = [f"{of} have the places of a compiled graph's calls"] if of else []
    said += [f"{captured} those of their capture"] if captured else []
    said += [f"{'the others' if said else 'they'} have the launch's place"] if of + captured < count else []
    return [
        f"{count} activities were replayed by {times}: {', '.join(said)}; "
        "operators and shapes inside a graph are not in a trace"
    ]
