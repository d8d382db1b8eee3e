"""Typical damage of GPU traces, done to sound ones: each function gives damaged events of its own."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Events = list[dict[str, Any]]
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
CALLS = ("cuda_runtime", "cuda_driver")
MARKS = "gpu_user_annotation"
STEPS = ("ProfilerStep#", "perfkit:step:")


def events_of(path: Path) -> Events:
    """The events of a sound trace."""
    content = json.loads(gzip.decompress(path.read_bytes()))
    return list(content["traceEvents"] if isinstance(content, dict) else content)


def on_gpu(event: dict[str, Any]) -> bool:
    return event.get("cat") in ON_GPU


def zeroed(events: Events) -> Events:
    """As a second profiler session leaves them before the export: calls of CUDA and the GPU's work have no times."""
    return [{**e, "ts": 0.0, "dur": 0.0} if on_gpu(e) or e.get("cat") in CALLS else e for e in events]


def without_durations(events: Events) -> Events:
    return [{**e, "dur": 0.0} if on_gpu(e) else e for e in events]


def halved(events: Events) -> Events:
    """Every second activity is gone."""
    lost = {id(e) for e in [e for e in events if on_gpu(e)][::2]}
    return [e for e in events if id(e) not in lost]


def cut(share: float) -> Callable[[Events], Events]:
    """The last `share` of the activities is gone, as where a buffer overflows."""

    def lost(events: Events) -> Events:
        starts = sorted(float(e["ts"]) for e in events if on_gpu(e))
        first = starts[round((1 - share) * len(starts))] if share < 1 else starts[0]
        return [e for e in events if not (on_gpu(e) and float(e["ts"]) >= first)]

    return lost


def shifted(seconds: float) -> Callable[[Events], Events]:
    """The GPU's clock is ahead by `seconds`."""

    def moved(events: Events) -> Events:
        mine = (*ON_GPU, MARKS)
        return [{**e, "ts": float(e["ts"]) + 1e6 * seconds} if e.get("cat") in mine else e for e in events]

    return moved


def without_steps(events: Events) -> Events:
    """The host's marks of steps are gone."""
    return [e for e in events if not (str(e.get("name")).startswith(STEPS) and e.get("cat") != MARKS)]


def without_own_steps(events: Events) -> Events:
    """perfkit's marks of steps are on the GPU only."""
    return without_steps([{**e, "name": str(e["name"]).replace("ProfilerStep#", "perfkit:step:")} for e in events])


def without_any_steps(events: Events) -> Events:
    """All marks of steps are gone, and the ranges that show them."""
    return [e for e in events if not str(e.get("name")).startswith((*STEPS, "Optimizer.step#"))]


def write(path: Path, events: Events, damage: Callable[[Events], Events] = list) -> Path:
    """The damaged events as a trace file."""
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": damage(copy.deepcopy(events))}, indent=0))
    return path
