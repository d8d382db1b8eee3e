"""The effect of each host event: the kinds of calls of operators that work, and the cause of every other event's time.

The time of a row is the event's self time: its duration without the events inside it. So no time counts twice. For work
not to count twice either, `settle` decides between an operator and the operators that it calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfkit import profile_names
from perfkit.columns import Booleans, Coded, Integers
from perfkit.cost import Cost, CostModel
from perfkit.numbers import numbered
from perfkit.profile_names import CPU_COLLECTIVES, LOADER, NCCL, PASS, PROFILER_STEP, STEP, pass_of
from perfkit.readers.kineto.decode.events import (
    ANNOTATION,
    OPERATOR,
    OVERHEAD,
    PYTHON,
    RUNTIME,
    HostEvents,
    Key,
    values_at,
)
from perfkit.readers.kineto.measure import completed, own
from perfkit.readers.kineto.measure.calls import KindOfCall, call_of, describe, is_triton, triton_cost, usual_dtype
from perfkit.run_folder import DeclaredKernel
from perfkit.table import FLOP_COLUMNS, RESOURCES

# The meaning of an event's self time, when it is not a row's; the last four are a GPU's, of launched work.
CAUSES = (
    "dispatch", "allocation", profile_names.SYNC, "autograd", "Python", "profiler", "data", "other",
    profile_names.LAUNCH, profile_names.CUDA_ALLOCATION, profile_names.DRIVER, "another rank", "latency", "queued",
    profile_names.STREAM_WAIT, "earlier work",
)  # fmt: skip
(
    DISPATCH, ALLOCATION, SYNC, AUTOGRAD, PYTHON_CODE, PROFILER, DATA, OTHER, LAUNCH, CUDA_ALLOCATION, DRIVER, RANK,
    LATENCY, QUEUED, STREAM_WAIT, EARLIER,
) = range(len(CAUSES))  # fmt: skip
WORK = -1

_KINDS = {"work": WORK, "view": DISPATCH, "dispatch": DISPATCH, "allocation": ALLOCATION, "sync": SYNC}
_GENERATED = re.compile(r"^(graph_\d+_)?(cpp|triton)_")
_COLLECTIVE_OPERATOR = "record_param_comms"
# CUPTI's names of its own work; other overheads are the driver's.
PROFILERS_OWN = ("Buffer Flush", "Instrumentation", "Resource", "Activity Buffer Request", "UVM Activity Init")
_MODE, _SUBCLASS = "PythonDispatchMode", "PythonSubclass"  # PyTorch's marks of what a mode or a subclass handles
_ENGINE = "run_backward"  # the Python function that runs autograd's engine


@dataclass
class HostRows:
    """For each host event: whether it is a row, its cause otherwise (`CAUSES`), the time and kind of call of rows.

    `kind` indexes `kinds`, −1 for events that do no work. The cause of a row, and of a helper whose time is in
    a row, is `WORK`.
    """

    is_row: Booleans
    cause: Integers
    time_ns: Integers
    kinds: list[KindOfCall]
    kind: Integers


def on_device(
    events: HostEvents,
    wrapper: Booleans,
    costs: CostModel,
    declared: Mapping[str, DeclaredKernel],
    matmul_precision: str,
) -> HostRows:
    """The kinds of calls of working operators, each for itself: where a GPU does the work its kernels are the rows."""
    cause = classify(events, wrapper, costs, declared)
    working = np.flatnonzero(cause == WORK)
    kinds, codes = kinds_of_calls(events, working, costs, declared, matmul_precision)
    kind = np.full(len(events), -1, np.int32)
    kind[working] = codes
    completed.complete(events, kind, kinds, costs)
    rows = HostRows(cause == WORK, cause, events.self_ns.copy(), kinds, kind)
    if costs.own:
        own.claim(events, rows, costs)
    return rows


def wanted(costs: CostModel, declared: Mapping[str, DeclaredKernel]) -> Callable[[str], bool]:
    """Return by name whether the arguments of an operator or range are needed: those of work, and of its
    substitutes."""
    return lambda name: (
        _operator_cause(name, costs, declared) == WORK
        or costs.is_composite(name)
        or name in completed.EVIDENCE
        or name.startswith((NCCL, *CPU_COLLECTIVES))
        or name.endswith("AccumulateGrad")
    )


def launching_only(rows: HostRows) -> HostRows:
    """The same events where a GPU does the work: operators only launch, so their time is dispatch."""
    cause = np.where(rows.cause == WORK, DISPATCH, rows.cause)
    return HostRows(np.zeros_like(rows.is_row), cause, rows.time_ns, rows.kinds, rows.kind)


def classify(
    events: HostEvents, wrapper: Booleans, costs: CostModel, declared: Mapping[str, DeclaredKernel]
) -> Integers:
    """Cause of each event's self time, `WORK` for operators that compute or move data."""
    operators = [_operator_cause(n, costs, declared) for n in events.names]
    ranges, runtime = _range_causes(events.names), [_runtime_cause(n) for n in events.names]
    overhead = [PROFILER if n in PROFILERS_OWN else DRIVER for n in events.names]
    by_category = {OPERATOR: operators, ANNOTATION: ranges, RUNTIME: runtime, PYTHON: ranges, OVERHEAD: overhead}
    table = np.array([by_category[c] for c in range(OVERHEAD + 1)], np.int8)
    found = np.where(wrapper, np.int8(AUTOGRAD), table[events.category, events.name])
    return np.where(fake(events) & (found == WORK), np.int8(DISPATCH), found)


def fake(events: HostEvents) -> Booleans:
    """Return the events that compute nothing: operators under a mode that a tensor subclass enters while it handles
    one of its own.

    DTensor finds the shape of a result like that, with fake tensors of the whole size.
    """
    modes = events.named([name == _MODE for name in events.names])
    modes &= events.nearest(events.named([name == _SUBCLASS for name in events.names])) >= 0
    found = events.nearest(modes) >= 0
    found[events.parent[modes & (events.parent >= 0)]] = True
    return found


def is_generated(name: str) -> bool:
    """Return whether an operator of this name is a kernel that Inductor wrote."""
    return _GENERATED.match(name) is not None


def _operator_cause(name: str, costs: CostModel, declared: Mapping[str, DeclaredKernel]) -> int:
    """Kind of an operator by name.

    Names without a namespace that the registry does not know are functions around operators (`CompiledFunction`), but
    for PyTorch's own mark of a collective.
    """
    if name == _COLLECTIVE_OPERATOR:
        return DISPATCH
    if name in declared or is_generated(name):
        return WORK
    kind = costs.kind(name)
    return PYTHON_CODE if "::" not in name and kind in ("work", "dispatch") else _KINDS[kind]


def _range_causes(names: list[str]) -> list[int]:
    """Return what the time directly inside a range or Python function is, with no operator open: Python code, except

    in the backward pass (autograd's engine, between two nodes), in a data loader, in a collective, and, where no pass
    is marked, in a step (what happened there is unknown).
    """
    passes_marked = any(n.startswith(PASS) for n in names)

    def cause(name: str) -> int:
        if name.startswith(LOADER):
            return DATA
        if name.startswith(NCCL):
            return DISPATCH
        if name.startswith(CPU_COLLECTIVES):
            return RANK
        if name.startswith((STEP, PROFILER_STEP)):
            return PYTHON_CODE if passes_marked else OTHER
        return AUTOGRAD if pass_of(name) == profile_names.BACKWARD or _ENGINE in name else PYTHON_CODE

    return [cause(name) for name in names]


def _runtime_cause(name: str) -> int:
    return CAUSES.index(profile_names.cause_of_call(name))


def kinds_of_calls(
    events: HostEvents,
    working: Integers,
    costs: CostModel,
    declared: Mapping[str, DeclaredKernel],
    matmul_precision: str,
) -> tuple[list[KindOfCall], Integers]:
    """The distinct kinds of calls among `working`, and the code of each."""
    used, codes = numbered(events.call[working])
    keys = [events.calls[c] if c >= 0 else ("", b"", b"", b"", b"") for c in used.tolist()]
    usual = usual_dtype(keys)
    return [_kind_of_call(key, costs, declared, usual, matmul_precision) for key in keys], codes


def _kind_of_call(
    key: Key, costs: CostModel, declared: Mapping[str, DeclaredKernel], usual: str, matmul_precision: str
) -> KindOfCall:
    call = call_of(key, usual, matmul_precision)
    if key[0] in declared:
        kernel = declared[key[0]]
        return KindOfCall(describe(call), Cost(kernel.flop, kernel.bytes_read, kernel.bytes_written))
    if is_triton(key[0]):
        return KindOfCall(describe(call), triton_cost(call))
    words = ", ".join(filter(None, (describe(call), costs.variant(call))))
    return KindOfCall(words or None, costs.cost(call), costs.parts(call))


def costed(rows: HostRows, chosen: Integers) -> dict[str, Any]:
    """Shapes, FLOP and bytes of the host events `chosen`; absent where the kind of call has no cost."""
    kinds = rows.kinds
    code = values_at(rows.kind, chosen)
    result: dict[str, Any] = {"shapes": shapes_of(rows, code)}
    units = {unit for k in kinds if k.cost for unit in k.cost.flop}
    for resource, column in zip(RESOURCES, FLOP_COLUMNS, strict=True):
        if resource not in units:
            continue
        values = [k.cost.flop.get(resource, np.nan) if k.cost else np.nan for k in kinds]
        if not np.isnan(values).all():
            result[column] = _numbers(values, code)
    result["bytes_read"] = _numbers([k.cost.bytes_read if k.cost else np.nan for k in kinds], code)
    result["bytes_written"] = _numbers([k.cost.bytes_written if k.cost else np.nan for k in kinds], code)
    return result


def shapes_of(rows: HostRows, code: Integers) -> Coded:
    """Shapes and dtypes of kinds of calls as text; `code` indexes `rows.kinds`, −1 for none."""
    of_kind = Coded.of([k.shapes for k in rows.kinds])
    return Coded(of_kind.words, np.append(of_kind.code, np.int32(-1))[code])


def _numbers(values: list[float], code: Integers) -> Any:
    return np.append(np.asarray(values, dtype=float), np.nan)[code]
