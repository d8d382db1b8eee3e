"""A trace of torch.profiler written again as Nsight Systems would have exported the same moments.

Tables and columns are those of real exports of schema 3.20.2. What only torch.profiler knows (arguments of collectives,
process groups, operators of the host) is not in them.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

from tests.support.readers import nsys_exports as nsys
from tests.support.readers.nsys_exports import PROCESS, THREAD, Strings, Tables

AUTOGRAD = THREAD + 1
_DIRECTIONS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}


def events_of(trace: Path) -> list[dict[str, Any]]:
    with gzip.open(trace) as file:
        return [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]


def written(trace: Path, path: Path, environment: str = "", generic: bool = False) -> Path:
    """The export at `path`; `environment` such as RANK=0;WORLD_SIZE=2, `generic`: NCCL's kernel for any collective."""
    events = events_of(trace)
    zero = min(int(e["ts"] * 1e3) for e in events)
    tables = _tables(events, zero, generic)
    tables["TARGET_INFO_SESSION_START_TIME"] = [{"utcEpochNs": 1_770_000_000_000_000_000 + zero, "utcTime": ""}]
    shown = f"SHELL=/bin/bash;{environment};LS_COLORS=rs=0:di=01;34;_=/usr/local/bin/nsys"
    tables["TARGET_INFO_SYSTEM_ENV"] = [
        {"globalVid": 1, "devStateName": "Local (CLI)", "name": name, "nameEnum": number, "value": value}
        for name, number, value in (("Hostname", 619, "node"), ("DeviceEnvironment", 610, shown))
    ]
    return nsys.write(path, tables)


def _tables(events: list[dict[str, Any]], zero: int, generic: bool) -> Tables:
    strings = Strings()
    threads = list(dict.fromkeys(e["tid"] for e in events if e.get("cat") == "user_annotation"))
    of_thread = {tid: THREAD + i for i, tid in enumerate(threads)}
    tables: Tables = {"StringIds": [], nsys.KERNEL: [], nsys.COPY: [], nsys.FILL: [], nsys.CALL: [], nsys.RANGE: []}
    for e in events:
        start = round(e["ts"] * 1e3) - zero
        end, arguments = start + round(e["dur"] * 1e3), e.get("args", {})
        at = {"start": start, "end": end, "correlation": arguments.get("correlation", 0)}
        on = {"deviceId": arguments.get("device", 0), "streamId": arguments.get("stream", 0)}
        category = e.get("cat")
        if category == "kernel":
            name = re.sub(r"(ncclDevKernel)_\w+", r"\1_Generic_1", e["name"]) if generic else e["name"]
            tables[nsys.KERNEL].append(nsys.kernel(strings, name, **at, **on))
        elif category == "gpu_memcpy":
            direction = next(code for word, code in _DIRECTIONS.items() if word in e["name"])
            tables[nsys.COPY].append(nsys.copy(size=arguments["bytes"], direction=direction, **at, **on))
        elif category == "gpu_memset":
            row = nsys.copy(size=arguments["bytes"], direction=0, **at, **on)
            tables[nsys.FILL].append({k: v for k, v in row.items() if k not in ("copyKind", "srcKind", "dstKind")})
        elif category in ("cuda_runtime", "cuda_driver"):
            thread = of_thread.setdefault(e["tid"], THREAD + len(of_thread))
            tables[nsys.CALL].append(nsys.call(strings, e["name"], **at, thread=thread))
        elif category == "user_annotation":
            tables[nsys.RANGE].append(nsys.nvtx(e["name"], start, end, of_thread[e["tid"]]))
    tables["StringIds"] = strings.rows()
    tables["META_DATA_EXPORT"] = [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.20.2"}]
    tables["TARGET_INFO_GPU"] = [{"id": 0, "name": "NVIDIA H200", "smCount": 132}]
    assert all(row["globalPid"] == PROCESS for row in tables[nsys.KERNEL])
    return tables
