"""torch.profiler (Kineto) traces → kernel table.

On a CPU a row is one execution of a working operator; where the trace holds GPU activity a row is a kernel, copy or
fill, placed by the operator that launched it. docs/numbers.md says how self time, place and gaps are worked out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfkit import table
from perfkit.cost import CostModel
from perfkit.readers import kineto_columns, kineto_gpu, kineto_json
from perfkit.readers.kineto_events import DeviceEvents, HostEvents, split
from perfkit.readers.kineto_gaps import account
from perfkit.readers.kineto_place import Place, Steps, find_steps, place
from perfkit.readers.kineto_rows import choose, on_device_only
from perfkit.run_folder import DeclaredKernel

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
) -> table.KernelTable:
    """Read the trace at `path` (JSON, plain or gzip) into a kernel table.

    `passes` maps passes of the workload to module patterns (forward work in a module that matches none stays in
    "forward"), `layers` is the module pattern of the repeated blocks. `declared` holds the work of generated kernels by
    the name they have in the trace; `event_cost_ns` is what recording one event costs, for the estimate of the
    profiler's own share of the gaps. `facts` of the table hold steps, step_ns, busy_ns, gaps, events.
    Raises `InputError` for a file that is missing, damaged or no trace.
    """
    path = Path(path)
    trace, warnings = kineto_json.decode(kineto_json.read_bytes(path), path)
    host, device = split(trace.traceEvents)
    costs = costs or CostModel()
    steps = find_steps(host)
    places = place(host, steps)
    rows = choose(host, places.wrapper, costs, declared or {}, matmul_precision)
    if len(device):
        rows = on_device_only(rows)
        columns = kineto_gpu.columns(host, device, places, rows, steps, trace)
    else:
        columns = kineto_columns.host_rows(host, places, rows)
    kineto_columns.finish(columns, costs, declared or {}, passes or {}, layers)
    facts = account(host, device, steps, places, rows, event_cost_ns).facts()
    if event_cost_ns is not None:
        facts["profiler_estimate"] = {"event_cost_ns": event_cost_ns, "events": facts["events"]}
    warnings += _warnings(host, device, steps, places, columns)
    source = {"path": str(path), "reader": READER}
    return table.build(columns, warnings, source, facts)


def _warnings(
    host: HostEvents, device: DeviceEvents, steps: Steps, places: Place, columns: dict[str, Any]
) -> list[str]:
    """What a person must know to read the table rightly."""
    found = []
    if not len(host) and not len(device):
        found.append("the trace holds no operators and no kernels")
    if not steps.marked and len(host):
        found.append("the trace marks no steps: the whole capture counts as one step")
    if host.clipped:
        found.append(f"{host.clipped} events outlast the event around them and were cut to it")
    outside = int(columns["step"].isna().sum()) if steps.marked else 0
    if outside:
        rows = "1 row lies" if outside == 1 else f"{outside} rows lie"
        found.append(f"{rows} outside the marked steps and count in none")
    found += kineto_columns.uncosted(columns)
    return found
