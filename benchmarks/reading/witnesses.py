"""Witnesses of a profile: what a few lines of plain Python or SQL count in it, without any of perfkit's readers.

A witness is a dictionary of times in ns, bytes and counts; what it cannot know is left out.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

KERNELS, COPIES, FILLS = {"kernel", "Kernel"}, {"gpu_memcpy", "Memcpy"}, {"gpu_memset", "Memset"}
CALLS = {"cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "mtia_runtime", "privateuse1_runtime"}
ANNOTATIONS = ("user_annotation", "cpu_op", "operator", "Operator")
COLLECTIVE = re.compile(r"^(?:nccl|rccl|msccl)|ncclDevKernel")
Intervals = Iterable[tuple[float, float]]


def union(intervals: Intervals) -> float:
    """How long at least one of the intervals (start, end) lasts."""
    total, reach = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total


def _events(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    content = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    listed = content["traceEvents"] if isinstance(content, dict) else content
    return [e for e in listed if isinstance(e, dict) and e.get("ph") == "X" and "ts" in e]


def of_trace(path: Path) -> dict[str, Any]:
    """The witness of a torch.profiler trace."""
    events = _events(path)
    mtia = [e for e in events if e.get("cat") == "mtia_ccp_events" and not e["name"].startswith("event_")]
    kernels = [e for e in events if e.get("cat") in KERNELS] + [e for e in mtia if e["name"] != "dma_request"]
    copies = [e for e in events if e.get("cat") in COPIES] + [e for e in mtia if e["name"] == "dma_request"]
    work = [*kernels, *copies, *(e for e in events if e.get("cat") in FILLS)]
    if not work:
        return _of_operators(events)
    origin = min(float(e["ts"]) for e in work)
    spans = [((float(e["ts"]) - origin) * 1e3, (float(e["ts"]) - origin + e.get("dur", 0)) * 1e3) for e in work]
    found: dict[str, Any] = {
        "kernels": len(kernels),
        "activities": len(work),
        "kernel_ns": sum(e.get("dur", 0) for e in kernels) * 1e3,
        "busy_ns": union(spans),
        "collectives": sum(COLLECTIVE.search(e["name"]) is not None for e in kernels),
    }
    sizes = [e.get("args", {}).get("size" if e["cat"].startswith("mtia") else "bytes") for e in copies]
    if copies and None not in sizes:
        found["copy_bytes"] = sum(sizes)
    return {**found, **_launched(events, work)}


def _launched(events: list[dict[str, Any]], work: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum the work that each marked step launched, by the call with its correlation and the step that holds it.

    Nothing of an excerpt, in which most launches are missing.
    """
    marks = [
        e for e in events if re.match(r"ProfilerStep#\d|perfkit:step:\d", e["name"]) and e.get("cat") in ANNOTATIONS
    ]
    marks = [e for e in marks if e["name"].startswith("perfkit")] or marks
    steps = sorted((float(e["ts"]), float(e["ts"]) + e["dur"]) for e in marks)
    if not steps:
        return {}
    called = {e.get("args", {}).get("correlation"): float(e["ts"]) for e in events if e.get("cat") in CALLS}
    found: Counter[int] = Counter()
    moments = [called.get(one.get("args", {}).get("correlation")) for one in work]
    if 2 * moments.count(None) > len(work):
        return {}
    for moment in moments:
        within = [i for i, (start, end) in enumerate(steps) if moment is not None and start <= moment < end]
        found[within[-1] if within else -1] += 1
    return {"launched_by_step": [found[i] for i in range(len(steps))]}


def _of_operators(events: list[dict[str, Any]]) -> dict[str, Any]:
    """On a CPU: how long the operators of each thread take together, which their rows cannot exceed."""
    threads: dict[Any, list[tuple[float, float]]] = {}
    for e in events:
        if e.get("cat") in ("cpu_op", "Operator", "operator") or "hlo_op" in e.get("args", {}):
            begin = float(e["ts"])
            threads.setdefault((e.get("pid"), e.get("tid")), []).append((begin, begin + e.get("dur", 0)))
    return {"operators_ns": sum(map(union, threads.values())) * 1e3}


_TABLES = {"kernels": "KERNEL", "copies": "MEMCPY", "fills": "MEMSET", "graphs": "GRAPH_TRACE"}


def of_export(path: Path) -> dict[str, Any]:
    """The witness of an sqlite export of Nsight Systems."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        there = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}
        spans: dict[str, list[tuple[int, int]]] = {}
        for kind, name in _TABLES.items():
            table = f"CUPTI_ACTIVITY_KIND_{name}"
            spans[kind] = db.execute(f"select start, end from {table}").fetchall() if table in there else []
        found: dict[str, Any] = {
            "kernels": len(spans["kernels"]),
            "kernel_ns": sum(end - start for start, end in spans["kernels"]),
            "activities": sum(map(len, spans.values())),
            "busy_ns": union([pair for pairs in spans.values() for pair in pairs]),
        }
        if spans["graphs"]:  # replays whose kernels are rows too count once
            found.pop("activities")
        if spans["copies"]:
            found["copy_bytes"] = db.execute("select sum(bytes) from CUPTI_ACTIVITY_KIND_MEMCPY").fetchone()[0]
        if spans["kernels"]:
            found["collectives"] = db.execute(
                "select count(*) from CUPTI_ACTIVITY_KIND_KERNEL k join StringIds s on s.id = k.shortName "
                "where s.value like 'nccl%' or s.value like 'rccl%'"
            ).fetchone()[0]
    return found


def of_report(path: Path) -> dict[str, Any]:
    """The witness of a report of Nsight Compute, by NVIDIA's package."""
    import ncu_report

    context = ncu_report.load_report(str(path))
    actions = [action for i in range(len(context)) for action in context.range_by_idx(i)]
    times = [action.metric_by_name("gpu__time_duration.sum") for action in actions]
    found: dict[str, Any] = {"kernels": len(actions)}
    if all(time is not None and time.has_value() for time in times):
        known = [time.as_double() for time in times]  # NaN of a kernel whose measurement failed
        found["kernel_ns"] = sum(ns for ns in known if not math.isnan(ns))
    return found


def of_csv(path: Path) -> dict[str, Any]:
    """The witness of what `ncu --csv` printed: how many launches it names."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    first = next(i for i, line in enumerate(lines) if line.lstrip('"').startswith("ID") and "Kernel Name" in line)
    rows = csv.DictReader(lines[first:])
    return {"kernels": len({(row.get("Process ID"), row["ID"]) for row in rows if (row["ID"] or "").isdigit()})}


def of_file(path: Path) -> dict[str, Any]:
    """The witness of any profile, by its first bytes."""
    with path.open("rb") as file:
        head = file.read(16)
    if head.startswith(b"NVR\0"):
        return of_report(path)
    if head.startswith(b"SQLite format 3\0"):
        return of_export(path)
    if head.startswith(b"\x1f\x8b") or head.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] in (b"{", b"["):
        return of_trace(path)
    return of_csv(path)
