"""Activities of the GPU and the calls that launched them, from an export of Nsight Systems.

Kernels, copies and fills have a table each. With tracing at the level of graphs, replays of CUDA graphs are in a table
of their own and their kernels nowhere: a replay is one row here, so that the GPU does not look idle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfkit.readers.kernel_names import short_name_by_tool
from perfkit.readers.nsys.database import ABSENT, Database, Integers, first_present, spoken

KERNEL, COPY, FILL, GRAPH = KINDS = ("gpu_kernel", "memcpy", "memset", "graph")
TABLES = {
    KERNEL: "CUPTI_ACTIVITY_KIND_KERNEL",
    COPY: "CUPTI_ACTIVITY_KIND_MEMCPY",
    FILL: "CUPTI_ACTIVITY_KIND_MEMSET",
    GRAPH: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
}
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
PROCESS_BITS = 24  # a thread's id with this many low bits cleared is its process's

# Kinds of copies and of memory as exports number them (ENUM_CUDA_MEMCPY_OPER, ENUM_CUDA_MEM_KIND).
DIRECTIONS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
    11: "unified HtoD", 12: "unified DtoH", 13: "unified DtoD",
}  # fmt: skip
MIGRATIONS = (11, 12, 13)  # of unified memory: a page fault moves them, and no call launches them
_MEMORY = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static",
}  # fmt: skip

_COMMON = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_KERNEL_COLUMNS = {
    "grid_x": "gridX", "grid_y": "gridY", "grid_z": "gridZ",
    "block_x": "blockX", "block_y": "blockY", "block_z": "blockZ", "registers": "registersPerThread",
}  # fmt: skip
_FARTHEST = 2**50  # ns, 13 days: a time this far from the others is damage, and no sum of shorter ones overflows
_LARGEST = 2**61


@dataclass
class Activity:
    """Rows of GPU activity by start. `kind` indexes `KINDS`; `launch` holds columns of the table for kernels.

    `amount` is bytes of a copy or fill (else `ABSENT`); `direction` a copy's kind; `shared_given` the shared memory
    a multiprocessor was set to for a kernel; `dropped` sentences about rows that could not be used.
    """

    kind: Integers
    start: Integers
    end: Integers
    device: Integers
    stream: Integers
    correlation: Integers
    process: Integers
    name: list[str]
    short_name: list[str]
    amount: Integers
    direction: Integers
    launch: dict[str, Integers]
    shared_given: Integers
    dropped: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.start)

    def of(self, *kinds: str) -> Any:
        """Which rows are of one of `kinds`."""
        return np.isin(self.kind, [KINDS.index(k) for k in kinds])


@dataclass
class CudaCalls:
    """CUDA runtime and driver calls by thread, then start; `name` is without the version that nsys appends."""

    start: Integers
    end: Integers
    thread: Integers
    correlation: Integers
    name: list[str]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def process(self) -> Integers:
        """The process of each call."""
        return process_of(self.thread)


def process_of(thread: Integers) -> Integers:
    """The process of each thread id; absent stays absent."""
    return np.where(thread == ABSENT, ABSENT, thread >> PROCESS_BITS << PROCESS_BITS)


def read_activity(database: Database) -> Activity:
    """Everything that ran on a GPU, by start."""
    raw = {kind: _table(database, kind) for kind in KINDS}
    dropped = [text for kind in KINDS if (text := _drop_unusable(raw[kind], kind))]
    _drop_traced_twice(raw)
    names, short_names = _names(database, raw)
    kind = np.repeat(np.arange(len(KINDS)), [len(raw[k]["start"]) for k in KINDS])
    columns = {c: np.concatenate([raw[k].pop(c) for k in KINDS]) for c in list(raw[KERNEL])}
    order = np.lexsort((columns["end"], columns["start"]))
    sorted_ = {c: columns.pop(c)[order] for c in list(columns)}
    launch = {to: sorted_[of] for to, of in _KERNEL_COLUMNS.items()}
    launch["shared_bytes"] = _shared(sorted_["staticSharedMemory"], sorted_["dynamicSharedMemory"])
    return Activity(
        kind=kind[order],
        start=sorted_["start"], end=sorted_["end"], device=sorted_["deviceId"], stream=sorted_["streamId"],
        correlation=sorted_["correlationId"], process=sorted_["globalPid"],
        name=[names[i] for i in order.tolist()], short_name=[short_names[i] for i in order.tolist()],
        amount=sorted_["bytes"], direction=sorted_["copyKind"], launch=launch,
        shared_given=sorted_["sharedMemoryExecuted"], dropped=dropped,
    )  # fmt: skip


def _table(database: Database, kind: str) -> dict[str, Integers]:
    special = (
        *_KERNEL_COLUMNS.values(), "staticSharedMemory", "dynamicSharedMemory", "demangledName", "shortName",
        "sharedMemoryExecuted", "mangledName", "bytes", "copyKind", "srcKind", "dstKind", "graphId",
    )  # fmt: skip
    return database.integers(TABLES[kind], (*_COMMON, *special))


def _drop_unusable(columns: dict[str, Integers], kind: str) -> str:
    """Take out the rows without usable times; returns a sentence about them."""
    good = usable(columns["start"], columns["end"])
    lost = int((~good).sum())
    if lost:
        _keep(columns, good)
    return f"{lost} of {len(good)} rows of {TABLES[kind]} have impossible times and are left out" if lost else ""


def usable(start: Integers, end: Integers) -> Any:
    """Which intervals [start, end] in ns can be: both there, in order, and not days away from most others."""
    good = (start > -_LARGEST) & (end < _LARGEST) & (end >= start)
    if good.any():
        middle = int(np.partition(start[good], int(good.sum()) // 2)[int(good.sum()) // 2])
        good &= (np.clip(start, -_LARGEST, _LARGEST) - middle < _FARTHEST) & (
            middle - np.clip(start, -_LARGEST, _LARGEST) < _FARTHEST
        )
        good[good] = end[good] - start[good] < _FARTHEST
    return good


def _keep(columns: dict[str, Integers], rows: Any) -> None:
    for name in columns:
        columns[name] = columns[name][rows]


def _drop_traced_twice(raw: dict[str, dict[str, Integers]]) -> None:
    """A replay whose kernels are rows as well would count twice."""
    graph, kernel = raw[GRAPH], raw[KERNEL]
    if not len(graph["start"]) or not len(kernel["start"]):
        return
    pairs = set(zip(kernel["globalPid"].tolist(), kernel["correlationId"].tolist(), strict=True))
    mine = zip(graph["globalPid"].tolist(), graph["correlationId"].tolist(), strict=True)
    _keep(graph, np.array([c == ABSENT or (p, c) not in pairs for p, c in mine]))


def _names(database: Database, raw: dict[str, dict[str, Integers]]) -> tuple[list[str], list[str]]:
    """Names and short names of all rows, in the order of `KINDS`."""
    kernel = raw[KERNEL]
    long = first_present(kernel["demangledName"], kernel["shortName"], kernel["mangledName"])
    short = first_present(kernel["shortName"], long)
    texts = database.strings(long, short)
    copies = _copy_names(raw[COPY])
    fills = ["Memset (Device)"] * len(raw[FILL]["start"])
    graphs = [f"CUDA graph {g}" if g != ABSENT else "CUDA graph" for g in raw[GRAPH]["graphId"].tolist()]
    rest = [*copies, *fills, *graphs]
    names = spoken(long, texts, UNNAMED)
    return [*names, *rest], [*map(short_name_by_tool, names, spoken(short, texts, UNNAMED)), *rest]


UNNAMED = "kernel without a name"


def _copy_names(copies: dict[str, Integers]) -> list[str]:
    """Names in the form that torch.profiler gives copies: `Memcpy HtoD (Pageable -> Device)`."""
    columns = (copies[c].tolist() for c in ("copyKind", "srcKind", "dstKind"))
    known: dict[tuple[int, int, int], str] = {}
    return [known.setdefault(key, _copy_name(*key)) for key in zip(*columns, strict=True)]


def _copy_name(direction: int, source: int, target: int) -> str:
    name = f"Memcpy {DIRECTIONS.get(direction, 'of unknown direction')}"
    known = source in _MEMORY and target in _MEMORY
    return f"{name} ({_MEMORY[source]} -> {_MEMORY[target]})" if known else name


def _shared(static: Integers, dynamic: Integers) -> Integers:
    """Shared memory a block: the sum of both parts, absent where one is or where they cannot be."""
    known = (static >= 0) & (dynamic >= 0) & (static < _FARTHEST) & (dynamic < _FARTHEST)
    return np.where(known, np.where(known, static, 0) + np.where(known, dynamic, 0), ABSENT)


def read_calls(database: Database) -> CudaCalls:
    """The CUDA calls of all threads."""
    raw = database.integers(CALLS, ("start", "end", "globalTid", "correlationId", "nameId"))
    _keep(raw, usable(raw["start"], raw["end"]))
    order = np.lexsort((-raw["end"], raw["start"], raw["globalTid"]))
    _keep(raw, order)
    texts = {i: text.split("_v", 1)[0] for i, text in database.strings(raw["nameId"]).items()}
    names = spoken(raw["nameId"], texts, "CUDA call without a name")
    return CudaCalls(raw["start"], raw["end"], raw["globalTid"], raw["correlationId"], names)


def calls_behind(process: Integers, correlation: Integers, calls: CudaCalls) -> Integers:
    """Return the call of each (process, correlation id); −1 where it is outside the capture.

    Where no process is known, the correlation id alone decides.
    """
    if not len(calls) or not len(process):
        return np.full(len(process), -1, np.int64)
    of_call = calls.process if (process != ABSENT).any() else np.full(len(calls), ABSENT)
    key = _pairs(np.concatenate([process, of_call]), np.concatenate([correlation, calls.correlation]))
    mine, theirs = key[: len(process)], key[len(process) :]
    # The first of the calls with one id (a driver call inside a runtime call) is the outer one.
    order = np.lexsort((calls.start, theirs))
    index = np.minimum(np.searchsorted(theirs[order], mine), len(order) - 1)
    found = order[index]
    return np.where((theirs[found] == mine) & (correlation != ABSENT), found, -1)


def _pairs(first: Integers, second: Integers) -> Integers:
    """One number for each distinct pair."""
    a, b = np.unique(first, return_inverse=True)[1], np.unique(second, return_inverse=True)[1]
    return a.astype(np.int64) * (int(b.max(initial=0)) + 1) + b
