"""torch.profiler (Kineto) traces → kernel table.

On a CPU a row is one execution of a working operator; where the trace holds GPU activity a row is a kernel, copy or
fill, placed by the operator that launched it. docs/numbers.md says how self time, place and gaps are worked out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from perfkit import table
from perfkit.cost import CostModel
from perfkit.readers.kineto import call_sites as kineto_call_sites
from perfkit.readers.kineto import checks as kineto_checks
from perfkit.readers.kineto import columns as kineto_columns
from perfkit.readers.kineto import decoding as kineto_json
from perfkit.readers.kineto import gpu as kineto_gpu
from perfkit.readers.kineto import habits as kineto_habits
from perfkit.readers.kineto import idle as kineto_idle
from perfkit.readers.kineto import lines as kineto_lines
from perfkit.readers.kineto import lists as kineto_lists
from perfkit.readers.kineto import timeline as kineto_timeline
from perfkit.readers.kineto.collect import Collector, wanted_operator
from perfkit.readers.kineto.events import DeviceEvents, HostEvents
from perfkit.readers.kineto.gaps import account
from perfkit.readers.kineto.place import Steps, find_steps, place
from perfkit.readers.kineto.rows import choose, launching_only, on_device, works
from perfkit.run_folder import DeclaredKernel
from perfkit.tree.shares import CallSite

READER = "kineto"


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
    expected: kineto_checks.Expected | None = None,
) -> table.KernelTable:
    """Read the trace at `path` (JSON, plain or gzip) into a kernel table.

    `passes` maps passes of the workload to module patterns (forward work in a module that matches none stays in
    "forward"), `layers` is the module pattern of the repeated blocks. `declared` holds the work of generated kernels by
    the name they have in the trace; `event_cost_ns` is what recording one event costs, for the estimate of the
    profiler's own share of the gaps; `call_sites` says what the calls of compiled graphs serve.
    `facts` of the table hold steps, step_ns, busy_ns, gaps, events, trace_checks. `expected` is what a capture of
    perfkit's own knows of its trace.
    Raises `InputError` for a file that is missing, damaged or no trace, `UnusableProfile` for one that fails a check
    which its numbers need.
    """
    path, costs, declared = Path(path), costs or CostModel(), declared or {}
    with kineto_json.collector_off():
        columns, facts, warnings = _worked_out(
            path, costs, declared, matmul_precision, event_cost_ns, call_sites, expected
        )
        names = columns["name"]
        # By now the events are gone: of a large trace they take as much memory as the table.
        kineto_columns.finish(columns, costs, declared, passes or {}, layers)
        warnings += kineto_columns.uncosted({**columns, "name": names})
        return table.build(columns, warnings, {"path": str(path), "reader": READER}, facts)


def _worked_out(
    path: Path,
    costs: CostModel,
    declared: Mapping[str, DeclaredKernel],
    matmul_precision: str,
    event_cost_ns: float | None,
    call_sites: Sequence[Sequence[CallSite]],
    expected: kineto_checks.Expected | None,
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Columns, facts and warnings of the trace at `path`. Raises `UnusableProfile`."""
    host, device, found = _collected(path, works(costs, declared))
    steps = find_steps(host)
    places = place(host, steps)
    launched = None
    if len(device):
        rows = on_device(host, places.wrapper, costs, declared, matmul_precision)
        launched = kineto_gpu.launches(host, device)
        kineto_lists.complete(host, device, places, rows, launched.call, costs)
        columns = kineto_gpu.columns(host, device, places, rows, steps, launched)
        chosen = launched.around
        columns |= kineto_lines.on_lines(host, places, chosen, columns)
        rows = launching_only(rows)
    else:
        rows = choose(host, places.wrapper, costs, declared, matmul_precision)
        columns = kineto_columns.host_rows(host, places, rows)
        chosen = kineto_columns.events_of(host, rows)
        columns |= kineto_lines.on_lines(host, places, chosen, columns)
    unplaced: list[str] = []
    columns |= kineto_call_sites.on_call_sites(host, places, chosen, columns, call_sites, unplaced)
    if launched is not None:
        accounting = kineto_idle.account(host, device, steps, places, rows, launched.call, event_cost_ns)
    else:
        accounting = account(host, steps, places, rows, event_cost_ns)
    facts = accounting.facts()
    facts |= kineto_habits.facts(host, device, steps, places, lambda name: costs.kind(name) == "sync")
    if event_cost_ns is not None:
        facts["profiler_estimate"] = {"event_cost_ns": event_cost_ns, "events": accounting.recorded}
    if loops := {name: kernel.loops for name, kernel in declared.items() if kernel.loops}:
        facts["loops"] = loops
    if launched is not None:
        facts |= kineto_timeline.facts(host, device, steps, facts["gaps"], launched, found.devices)
    launch = launched.call if launched is not None else np.empty(0, np.int64)
    checks = kineto_checks.run(kineto_checks.Evidence(host, device, steps, launch, facts, expected))
    kineto_checks.refuse(path, checks)
    facts["trace_checks"] = msgspec.to_builtins([check for check, _ in checks])
    said = [check.sentence for check, _ in checks if check.sentence]
    return columns, facts, found.warnings() + unplaced + _warnings(host, device, steps, launched, columns) + said


def _collected(path: Path, wanted: Callable[[str], bool]) -> tuple[HostEvents, DeviceEvents, kineto_json.Found]:
    """The events of the trace at `path` as columns."""
    found = kineto_json.Found()
    collector = Collector(wanted_operator(wanted))
    for events in kineto_json.decode(path, found):
        collector.add(events)
        del events  # the next ones then take their memory, while it is in the cache
    return *collector.finish(), found


def _warnings(
    host: HostEvents,
    device: DeviceEvents,
    steps: Steps,
    launched: kineto_gpu.Launches | None,
    columns: dict[str, Any],
) -> list[str]:
    """What a person must know to read the table rightly."""
    found = []
    if not len(host) and not len(device):
        found.append("the trace holds no operators and no kernels")
    if not steps.marked and len(host):
        found.append("the trace marks no steps: the whole capture counts as one step")
    if host.clipped:
        found.append(f"{host.clipped} events outlast the event around them and were cut to it")
    outside = int((columns["step"] < 0).sum()) if steps.marked else 0
    if outside:
        rows = "1 row lies" if outside == 1 else f"{outside} rows lie"
        found.append(f"{rows} outside the marked steps and count in none")
    if launched is not None:
        found += _graph_warnings(launched)
    return found


def _graph_warnings(launched: kineto_gpu.Launches) -> list[str]:
    """What the trace does not tell about the work of CUDA graphs."""
    if not launched.replayed.any():
        return []
    replays = len(set(launched.call[launched.replayed].tolist()))
    times = "1 CUDA graph launch" if replays == 1 else f"{replays} CUDA graph launches"
    return [
        f"{int(launched.replayed.sum())} activities were replayed by {times}: they have the launch's place; "
        "operators and shapes inside a graph are not in a trace"
    ]
