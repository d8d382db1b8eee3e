"""Exports of Nsight Systems made by hand: sqlite files with the tables and columns that `nsys export` writes.

python -m tests.support.readers.nsys_exports profile.sqlite
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from perfkit.readers import read
from perfkit.table import KernelTable

PROCESS, OTHER_PROCESS = 7 << 24, 8 << 24
THREAD, AUTOGRAD_THREAD, OTHER_THREAD = PROCESS + 3, PROCESS + 4, OTHER_PROCESS + 3

KERNEL, COPY, FILL, GRAPH = (f"CUPTI_ACTIVITY_KIND_{k}" for k in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
CALL, WAIT, RANGE = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "NVTX_EVENTS"

Tables = dict[str, list[dict[str, Any]]]


class Strings:
    """The StringIds of an export."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids))

    def rows(self) -> list[dict[str, Any]]:
        return [{"id": i, "value": text} for text, i in self.ids.items()]


def kernel(strings: Strings, name: str, start: int, end: int, correlation: int, **more: Any) -> dict[str, Any]:
    return {
        "start": start, "end": end, "deviceId": 0, "streamId": 7, "correlationId": correlation, "globalPid": PROCESS,
        "demangledName": strings(name), "shortName": strings(name.removeprefix("void ").split("<")[0].split("(")[0]),
        "mangledName": None, "registersPerThread": 32, "gridX": 4, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1,
        "blockZ": 1, "staticSharedMemory": 1024, "dynamicSharedMemory": 512, "graphNodeId": None, **more,
    }  # fmt: skip


def copy(start: int, end: int, correlation: int, size: int, direction: int, **more: Any) -> dict[str, Any]:
    return {
        "start": start, "end": end, "deviceId": 0, "streamId": 7, "correlationId": correlation, "globalPid": PROCESS,
        "bytes": size, "copyKind": direction, "srcKind": 0, "dstKind": 2, **more,
    }  # fmt: skip


def call(strings: Strings, name: str, start: int, end: int, correlation: int, thread: int = THREAD) -> dict[str, Any]:
    return {
        "start": start, "end": end, "eventClass": 0, "globalTid": thread, "correlationId": correlation,
        "nameId": strings(name), "returnValue": 0,
    }  # fmt: skip


def nvtx(text: str, start: int, end: int | None, thread: int = THREAD, kind: int = 59, **more: Any) -> dict[str, Any]:
    return {"start": start, "end": end, "eventType": kind, "text": text, "globalTid": thread, "textId": None, **more}


def two_steps() -> Tables:
    """Two steps of perfkit's, worked out by hand in test_nsys.py, and a kernel of another process after them."""
    s = Strings()
    kernels = [
        kernel(s, "void first<float>(float*)", 150, 250, 1),
        kernel(s, "second", 340, 400, 2),
        kernel(s, "third", 700, 800, 3),
        kernel(s, "void first<float>(float*)", 1300, 1500, 5),
        kernel(s, "elsewhere", 3000, 3100, 1, globalPid=OTHER_PROCESS),
    ]
    calls = [
        call(s, "cudaLaunchKernel_v7000", 110, 120, 1),
        call(s, "cuLaunchKernel", 320, 330, 2),
        call(s, "cudaLaunchKernel_v7000", 600, 610, 3, AUTOGRAD_THREAD),
        call(s, "cudaMemcpyAsync_v3020", 900, 960, 4),
        call(s, "cudaMalloc_v3020", 1100, 1200, 90),
        call(s, "cudaLaunchKernel_v7000", 1200, 1210, 5),
        call(s, "cudaStreamSynchronize_v3020", 1510, 1900, 6),
        call(s, "cudaLaunchKernel_v7000", 2990, 2995, 1, OTHER_THREAD),
    ]
    ranges = [
        nvtx("perfkit:step:0", 0, 1000),
        nvtx("perfkit:step:1", 1000, 2000),
        nvtx("perfkit:pass:forward", 0, 500),
        nvtx("perfkit:pass:backward", 500, 1000),
        nvtx("my range", 90, 310),
        nvtx("perfkit:module:h.0", 100, 300),
        nvtx("a mark", 100, None, kind=34),
    ]
    waits = [
        {
            "start": 1510, "end": 1890, "deviceId": 0, "streamId": 7, "correlationId": 6, "globalPid": PROCESS,
            "syncType": 2,
        }
    ]  # fmt: skip
    return {
        "StringIds": s.rows(),
        KERNEL: kernels,
        COPY: [copy(920, 950, 4, 4096, 1)],
        CALL: calls,
        RANGE: ranges,
        WAIT: waits,
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.20.2"}],
        "TARGET_INFO_GPU": [{"id": 0, "name": "Tesla T4", "smCount": 40, "computeMajor": 7, "computeMinor": 5}],
    }


def write(path: Path, tables: Mapping[str, Iterable[Mapping[str, Any]]]) -> Path:
    """Write the tables as an sqlite file. A table without rows is left out, as nsys does."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for table, rows in tables.items():
            rows = list(rows)
            if not rows:
                continue
            names = list(rows[0])
            connection.execute(f'CREATE TABLE "{table}" ({", ".join(names)})')
            marks = ", ".join("?" * len(names))
            connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', [[r[n] for n in names] for r in rows])
    connection.close()
    return path


def without(tables: Tables, table: str, *columns: str) -> Tables:
    """The same tables with columns of one left out."""
    kept = [{n: v for n, v in row.items() if n not in columns} for row in tables[table]]
    return {**tables, table: kept}


def table_of(folder: Path, tables: Tables) -> KernelTable:
    """The table of an export that is written into `folder`."""
    table = read(write(folder / "profile", tables))
    assert isinstance(table, KernelTable)
    return table


if __name__ == "__main__":
    write(Path(sys.argv[1]), two_steps())
