"""Nsight Systems captures (sqlite exports, and `.nsys-rep` through `nsys export`) → kernel table.

A row is a kernel, a copy, a fill, or the replay of a whole CUDA graph. Its place comes from the NVTX ranges that were
open where it was launched: kernel → (process, correlation id) → CUDA call → ranges of that thread at that moment.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from perfkit import table, units
from perfkit.columns import Whole, integers
from perfkit.cost import CostModel
from perfkit.errors import InputError
from perfkit.intervals import by_cause_alone
from perfkit.readers import counters
from perfkit.readers.finish import finish
from perfkit.readers.launch_order import launch_order
from perfkit.readers.nsys import metrics as nsys_metrics
from perfkit.readers.nsys import occupancy as nsys_occupancy
from perfkit.readers.nsys import rank as nsys_rank
from perfkit.readers.nsys import timeline as nsys_timeline
from perfkit.readers.nsys.activity import (
    CALLS,
    COPY,
    DIRECTIONS,
    FILL,
    GRAPH,
    KERNEL,
    MIGRATIONS,
    TABLES,
    Activity,
    CudaCalls,
    calls_behind,
    process_of,
    read_activity,
    read_calls,
)  # fmt: skip
from perfkit.readers.nsys.database import ABSENT, Database, Integers, opened
from perfkit.readers.nsys.ranges import (
    RANGES,
    Ranges,
    StatePlaces,
    StepRanges,
    find_marks,
    places,
    project,
    read_ranges,
    summary,
)

READER = "nsys"
HOW = "Capture with `nsys profile --trace cuda,nvtx COMMAND`."
_MOST_RANGES = 1000  # names of ranges kept in the facts
_DIAGNOSIS = ("severity", "text")
_DIAGNOSTICS = 5  # of Nsight Systems' own warnings that are passed on
_WARNING, _ERROR = "2", "3"  # their severity
_NOTHING = re.compile(r"^No .* events collected|profiling might have not been started")  # said of one process
_OURS = re.compile(r"CUDA|CUPTI|NVTX|GPU|[Ll]ost|[Dd]ropped|buffer")  # what a warning has to speak of
_FOREIGN = {  # by how the name of a table of theirs begins
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": (
        "a database of nvprof",
        "Profile with its successor: `nsys profile COMMAND`, then `nsys export --type sqlite REPORT.nsys-rep`.",
    ),
    "rocpd_": (
        "a database of RPD, AMD's older tracer",
        "Record the program with torch.profiler, whose traces of AMD GPUs perfkit reads.",
    ),
}
_LAUNCHES = re.compile(r"^cu(da)?Launch(Cooperative)?Kernel(ExC?)?")


def read_export(path: Path, *, source: Path | None = None) -> table.KernelTable:
    """Read an sqlite export of Nsight Systems; `source` is the file it came from where that is another.

    `facts` of the table hold steps, step_ns, busy_ns, gaps, events as those of a torch.profiler trace do, and devices,
    ranges, copies, synchronisation, api, gpus, capture. Raises `InputError` for a file that is damaged, foreign, or
    without GPU activity.
    """
    shown = source or path
    with opened(path) as database:
        _check_kind(database, shown)
        activity, calls = read_activity(database), read_calls(database)
        if not len(activity):
            raise _nothing_ran(calls, shown, _diagnostics(database))
        ranges = read_ranges(database, int(max(activity.end.max(), calls.end.max(initial=activity.end.max()))))
        warnings = _warnings(database, activity, calls, ranges)
        gpus = _gpus(database)
        limits, tracks = nsys_occupancy.read_limits(database), nsys_metrics.read_tracks(database)
        facts = {
            "synchronisation": nsys_timeline.synchronisations(database, calls),
            "gpus": gpus,
            "capture": _capture(database),
            "origin_ns": nsys_rank.began(database) + int(activity.start.min()),
        }
        if said := nsys_rank.distributed(database, shown):
            facts["distributed"] = said
    columns = measured(activity)
    columns.update(nsys_occupancy.columns(activity, limits))
    made = assemble(activity, calls, ranges, columns, facts, warnings, {"path": str(shown), "reader": READER})
    bandwidth = {gpu["id"]: float(gpu["memoryBandwidth"]) for gpu in gpus if gpu["memoryBandwidth"]}
    counters.add(tracks, made, bandwidth, int(activity.start.min()))
    return made


def assemble(
    activity: Activity,
    calls: CudaCalls,
    ranges: Ranges,
    columns: dict[str, Any],
    facts: dict[str, Any],
    warnings: list[str],
    source: dict[str, str],
) -> table.KernelTable:
    """Join activity, calls and ranges to the table; `source` says which file it was read from and by which reader.

    Places and families that `columns` has already stay.
    """
    launch = calls_behind(activity.process, activity.correlation, calls)
    projection = project(ranges, calls, launch[launch >= 0])
    marks = find_marks(ranges)
    state = np.where(launch >= 0, projection.state[np.maximum(launch, 0)], -1) if len(calls) else launch
    columns.update(_placed(activity, calls, launch, state, places(ranges, projection), marks) | columns)
    columns.update(nsys_rank.columns_of(activity, columns["range"]))
    columns["order"] = _order(activity, calls, launch)
    finish(columns, CostModel(), {}, {}, "")
    columns["short_name"] = activity.short_name
    found = summary(ranges, projection, state, activity.of(KERNEL, GRAPH), activity.end - activity.start)
    steps = nsys_timeline.steps_of(marks.steps, activity)
    account = nsys_timeline.account(activity, calls, launch, steps, marks)
    facts = {
        **account,
        "idle": by_cause_alone(account["gaps"]),
        "per_step": nsys_rank.per_step(activity, steps),
        "step_names": marks.step_names or [str(i) for i in range(len(steps.start))],
        "devices": nsys_timeline.devices(activity),
        "ranges": found[:_MOST_RANGES],
        "copies": nsys_timeline.copies(activity),
        "api": nsys_timeline.api_calls(calls),
        **facts,
    }
    warnings += _join_warnings(activity, launch, calls, marks, columns, found)
    return table.build(columns, warnings, source, facts)


def _order(activity: Activity, calls: CudaCalls, launch: Integers) -> Whole:
    known = launch >= 0
    launched = calls.start[np.maximum(launch, 0)] if known.any() else np.zeros(len(activity), np.int64)
    where = np.stack([activity.process, activity.device, activity.stream])
    streams = np.unique(where, axis=1, return_inverse=True)[1].ravel()
    return integers(launch_order(launched, known, streams))


def measured(activity: Activity) -> dict[str, Any]:
    """Identity, launch and measures of the rows. Times count from the first activity."""
    kinds = np.array(list(TABLES), dtype=object)
    result: dict[str, Any] = {
        "name": activity.name,
        "kind": kinds[activity.kind],
        "device": _device_names(activity.device),
        "stream": _optional(activity.stream),
        "start_ns": (activity.start - activity.start.min()).astype(float),
        "duration_ns": (activity.end - activity.start).astype(float),
    }
    result.update({name: _optional(values) for name, values in activity.launch.items() if name != "shared_bytes"})
    result["shared_bytes"] = _real(activity.launch["shared_bytes"])
    result.update(_moved(activity))
    return result


def _moved(activity: Activity) -> dict[str, Any]:
    """Bytes of copies within a device and of fills. Others are bound by the link, not by memory: facts hold those."""
    code = next(code for code, direction in DIRECTIONS.items() if direction == "DtoD")
    inside = activity.of(COPY) & (activity.direction == code)
    amount = _real(activity.amount)
    read = np.where(inside, amount, np.where(activity.of(FILL), 0.0, np.nan))
    written = np.where(inside | activity.of(FILL), amount, np.nan)
    known = np.isfinite(written)
    origin = np.where(known, "counter", "absent")
    return {"bytes_read": np.where(known, read, np.nan), "bytes_written": written, "bytes_origin": origin}


def _device_names(device: Integers) -> list[str]:
    names = {d: nsys_timeline.device_name(d) for d in np.unique(device).tolist()}
    return [names[d] for d in device.tolist()]


def _optional(values: Integers) -> Any:
    import pandas as pd

    return pd.arrays.IntegerArray(values, values < 0)


def _real(values: Integers) -> Any:
    return np.where(values < 0, np.nan, values.astype(float))


def _placed(
    activity: Activity, calls: CudaCalls, launch: Integers, state: Integers, at: StatePlaces, marks: StepRanges
) -> dict[str, Any]:
    """Place columns. What a launch's own thread does not say, the steps' thread says by the time of the launch."""
    issued = np.where(launch >= 0, calls.start[np.maximum(launch, 0)], activity.start) if len(calls) else activity.start
    process = process_of(calls.thread)[np.maximum(launch, 0)] if len(calls) else activity.process
    near = np.where(launch >= 0, process, activity.process) == marks.process
    step_at, pass_at = (np.where(near, bounds.at(issued), -1) for bounds in (marks.steps, marks.passes))
    number = {name: i for i, name in reversed(list(enumerate(marks.step_names)))}
    own_step = np.array([number.get(s or "", -1) for s in at.step], dtype=np.int64)
    step = np.where(state >= 0, own_step[np.maximum(state, 0)], -1)
    passes = [
        mine or (marks.pass_names[i] if i >= 0 else None)
        for mine, i in zip(_said(at.pass_, state), pass_at.tolist(), strict=True)
    ]
    module, path, operator = (_said(words, state) for words in (at.module, at.path, at.operator))
    placed = [bool(p or m or r) for p, m, r in zip(passes, module, path, strict=True)]
    return {
        "step": np.where(step >= 0, step, step_at),
        "pass": passes,
        "module": module,
        "operator": operator,
        "range": path,
        "placed_by": ["range" if p else "none" for p in placed],
    }


def _said(words: list[str | None], state: Integers) -> list[str | None]:
    return [words[s] if s >= 0 else None for s in state.tolist()]


def _check_kind(database: Database, path: Path) -> None:
    """Raises `InputError` for an sqlite database that no export of Nsight Systems is."""
    ours = any(name.startswith("CUPTI_ACTIVITY_KIND_") for name in database.tables) or {
        "StringIds",
        "META_DATA_EXPORT",
    } <= set(database.tables)
    others = [said for begin, said in _FOREIGN.items() if any(name.startswith(begin) for name in database.tables)]
    for kind, next_step in others:
        raise InputError(f"{path} is {kind}, not an export of Nsight Systems.", next_step)
    if not ours:
        raise InputError(
            f"{path} is an sqlite database, but not an export of Nsight Systems.",
            "Make one with `nsys export --type sqlite REPORT.nsys-rep`.",
        )
    for kind in TABLES:
        if TABLES[kind] in database.tables and not database.has(TABLES[kind], "start", "end"):
            raise InputError(f"{path} is damaged: {TABLES[kind]} has no start and end times.", "Export it again.")


def _nothing_ran(calls: CudaCalls, path: Path, said: list[str]) -> InputError:
    holds = f"only {len(calls)} CUDA calls of the host" if len(calls) else "no CUDA calls either"
    also = "".join(f" {text}" if text.endswith((".", "?", "!")) else f" {text}." for text in said)
    return InputError(
        f"{path} holds no GPU activity: it has no kernel, copy, fill or graph that can be used, {holds}.{also}",
        f"{HOW[:-1]}, and let the program end by itself: what the GPU did is written at its end.",
    )


def _warnings(database: Database, activity: Activity, calls: CudaCalls, ranges: Ranges) -> list[str]:
    """Return what the file lacks or lost."""
    damage = database.damage()
    found = [f"the file is damaged ({damage}): rows may be missing"] if damage else []
    found += [*activity.dropped, *ranges.dropped]
    graphs = int(activity.of(GRAPH).sum())
    if not activity.of(KERNEL, GRAPH).any():
        found.append("the capture holds no kernels, only copies and fills")
    if graphs:
        found.append(
            f"{graphs} replays of CUDA graphs are one row each and their kernels unknown; "
            "capture with `--cuda-graph-trace=node` to see them"
        )
    if not len(calls):
        found.append(
            f"the capture has no CUDA calls ({CALLS}): nothing can be placed in a range, idle time has no cause"
        )
    if RANGES not in database.tables or not len(ranges):
        found.append("the capture holds no NVTX ranges: kernels are placed in no step, pass or layer (trace nvtx too)")
    if ranges.unclosed:
        found.append(f"{ranges.unclosed} NVTX ranges never ended and count until the end of the capture")
    found.append("Nsight Systems records times only: FLOP and bytes of kernels are unknown without an ncu report")
    return found + _diagnostics(database, {*activity.process.tolist(), *calls.process.tolist()} - {ABSENT})


def _diagnostics(database: Database, known: Collection[int] = ()) -> list[str]:
    """Nsight Systems' own errors, then its warnings about what it may have missed of CUDA and NVTX. Where the processes
    that used CUDA are `known`, a warning that nothing was collected of another one, such as a shell, is left out."""
    events = []
    process = ("globalPid",) if known and database.has("DIAGNOSTIC_EVENT", "globalPid") else ()
    ours = {str(one) for one in known}
    for level, text, *of in database.texts("DIAGNOSTIC_EVENT", (*_DIAGNOSIS, *process)):
        if not (of and of[0] and of[0] not in ours and _NOTHING.search(text)):
            events.append((level, " ".join(text.split())[:200]))
    said = [text for level, text in events if level == _ERROR]
    said += [text for level, text in events if level == _WARNING and _OURS.search(text)]
    return [f"Nsight Systems says: {text}" for text in dict.fromkeys(said)][:_DIAGNOSTICS]


def _join_warnings(
    activity: Activity,
    launch: Integers,
    calls: CudaCalls,
    marks: StepRanges,
    columns: dict[str, Any],
    ranges: list[dict[str, Any]],
) -> list[str]:
    """Return what the join of activity, calls and ranges left open."""
    found = []
    empty = _launches_without_kernel(activity, launch, calls)
    if empty:
        found.append(f"{empty} launches of kernels have no kernel in the capture: some may be missing")
    moved = activity.of(COPY) & np.isin(activity.direction, MIGRATIONS)
    if moved.any():
        took = units.text(float((activity.end - activity.start)[moved].sum()), "ns")
        many = int(moved.sum())
        some = "1 migration of unified memory takes" if many == 1 else f"{many} migrations of unified memory take"
        found.append(f"{some} {took}: page faults move them, not calls (cudaMemPrefetchAsync moves them ahead)")
    lost = int(((launch < 0) & ~moved).sum())
    if lost and len(calls):
        found.append(f"{lost} of {len(launch)} GPU activities were launched outside the capture: no range holds them")
    if not marks.steps.marked:
        found.append("the trace marks no steps: the whole capture counts as one step")
    outside = int(columns["step"].isna().sum()) if marks.steps.marked else 0
    if outside:
        rows, counts = ("1 row", "counts") if outside == 1 else (f"{outside} rows", "count")
        found.append(f"{rows} outside the marked steps {counts} in none")
    if len(ranges) > _MOST_RANGES:
        found.append(f"of {len(ranges)} names of ranges the {_MOST_RANGES} with most kernel time are kept")
    return found


def _launches_without_kernel(activity: Activity, launch: Integers, calls: CudaCalls) -> int:
    """Count the calls that launched a kernel without a row before the last row began (later ones may not have run)."""
    if not len(calls) or activity.of(GRAPH).any():
        return 0
    served = np.zeros(len(calls), bool)
    served[launch[launch >= 0]] = True
    behind = set(zip(calls.process[served].tolist(), calls.correlation[served].tolist(), strict=True))
    early = calls.end < activity.start.max()
    asked = np.array([_LAUNCHES.search(name) is not None for name in calls.name]) & ~served & early
    pairs = zip(calls.process[asked].tolist(), calls.correlation[asked].tolist(), strict=True)
    return sum(pair not in behind for pair in pairs)  # a call inside of a call has its id


def _gpus(database: Database) -> list[dict[str, Any]]:
    """The GPUs as the capture describes them; memory bandwidth in bytes/s, clock in Hz."""
    names = (
        "id",
        "memoryBandwidth",
        "clockRate",
        "smCount",
        "l2CacheSize",
        "totalMemory",
        "computeMajor",
        "computeMinor",
    )
    numbers = database.integers("TARGET_INFO_GPU", names)
    said = [row[0][:200] for row in database.texts("TARGET_INFO_GPU", ("name",))]
    found = []
    for i, name in enumerate(said):
        value = {n: int(numbers[n][i]) if numbers[n][i] >= 0 else None for n in names}
        capability = (value.pop("computeMajor"), value.pop("computeMinor"))
        known = None not in capability
        found.append({"name": name, **value, "compute_capability": "{}.{}".format(*capability) if known else None})
    return found


def _capture(database: Database) -> dict[str, str]:
    """Versions of the tool and of the export's schema."""
    said = database.settings("META_DATA_EXPORT")
    wanted = {"tool_version": "EXPORT_PRODUCT_VERSION", "schema": "EXPORT_SCHEMA_VERSION"}
    return {key: said[name][:100] for key, name in wanted.items() if name in said}
