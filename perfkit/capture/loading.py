"""From what a program and the workers of its DataLoaders noted to the fact `loading` of a kernel table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perfkit.capture.agent.order import LOADING, WORKER
from perfkit.hardware.cpu import read_cpu
from perfkit.readers.kineto.lines.line_times import code_of, short, shown
from perfkit.readers.kineto.lines.stacks import SourceFrame


def loading(folder: Path, steps: int) -> list[dict[str, Any]]:
    """Return the facts about each loader of a process, the batches with those of its workers; `steps` were timed.

    Batches count from the timed steps on. Times are in ns, from the begin of these steps.
    """
    try:
        noted = json.loads((folder / LOADING).read_text())
    except (OSError, ValueError):
        return []
    begin, end = noted["timed"]
    found = []
    for loader in noted["loaders"]:
        asks = [[asked - begin, got - begin, *more] for asked, got, *more in loader["asks"] if asked >= begin]
        processes = [_worker(folder, process, number, begin) for process, number in loader.pop("processes").items()]
        if asks:
            timed = {"timed_ns": end - begin, "steps": steps, "cores": _cores()}
            workers = sorted((one for one in processes if one), key=lambda one: one["worker"])
            found.append({**loader, **timed, "asks": asks, "processes": workers})
    return found


def _worker(folder: Path, process: str, number: int, begin: float) -> dict[str, Any] | None:
    """Return the notes of one worker; None where it left nothing."""
    try:
        noted = json.loads((folder / WORKER.format(process)).read_text())
    except (OSError, ValueError):
        return None
    batches = [[started - begin, ended - begin, *more] for started, ended, *more in noted["batches"]]
    frames = [SourceFrame(file, line, function, True) for file, line, function, _, _ in noted["lines"]]
    places = zip(frames, short(frames), noted["lines"], strict=True)
    lines = [
        {"file": path.file, "line": path.line, "function": path.function, "code": code_of(frame)}
        | {"library": _shown(within), "ns": ns}
        for frame, path, (_, _, _, within, ns) in places
    ]
    return {"worker": number, "batches": batches, "lines": lines}


def _shown(place: str) -> str:
    """A library's file and function, by the file's path from its package on."""
    path, _, function = place.partition(" in ")
    return f"{shown(path)} in {function}" if function else ""


def _cores() -> float:
    cpu = read_cpu()
    return min(cpu.logical, cpu.quota or cpu.logical)
