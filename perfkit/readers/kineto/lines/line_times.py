"""Time of the lines of a trace, summed by line: the host's time, Python's, the GPU's idle time, kernels, waits."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.columns import Coded, Integers
from perfkit.intervals import Union
from perfkit.profile_names import LOADER, PASS, doubt
from perfkit.readers.kineto.decode.events import HostEvents
from perfkit.readers.kineto.lines.join import Lined
from perfkit.readers.kineto.lines.stacks import SourceFrame

_LOADING = (f"{PASS}loading", f"{LOADER}#")
_INSTALLED = re.compile(r".*(/site-packages/|/dist-packages/|/lib/python3(\.\d+)?/)")
_MOST = 500  # lines that are kept, those with the most time


def short(frames: list[SourceFrame]) -> list[SourceFrame]:
    """The frames with paths as short as they can be said: from the folder that the program runs in, from their package
    on, else from the folder around all such files on."""
    paths = {frame.file: shown(frame.file) for frame in frames}
    far = [path for path, name in paths.items() if name == path and path.startswith(os.sep)]  # the user's files
    around = os.path.dirname(os.path.commonpath([os.path.dirname(path) for path in far])) if far else ""
    if around.strip(os.sep):
        paths |= {path: os.path.relpath(path, around) for path in far}
    return [frame._replace(file=paths[frame.file]) for frame in frames]


def texts(frames: list[SourceFrame]) -> list[str]:
    """Each frame as it is shown."""
    return [text_of(frame) for frame in short(frames)]


def text_of(frame: SourceFrame) -> str:
    """A frame in words: `train.py:8 in augment`."""
    line = f":{frame.line}" if frame.line else ""
    return f"{frame.file}{line} in {frame.function}{doubt(frame.exact, frame.compiled)}"


def shown(path: str) -> str:
    """A path from the folder that the program ran in, or from its package on."""
    installed = _INSTALLED.match(path)
    if installed:
        return path[installed.end() :]
    here = os.getcwd() + os.sep
    return path.removeprefix(here) if path.startswith(here) else path


def column(lined: Lined, frame: Integers) -> Coded:
    """The line of each row by its `frame`, −1 for none."""
    words = Coded.of(list(texts(lined.frames)))
    return Coded(words.words, np.append(words.code, -1)[frame].astype(np.int32))


def by_line(
    host: HostEvents, lined: Lined, idle: Union | None, waits: Mapping[str, tuple[Integers, Integers]],
    bytes_: Mapping[int, float] | None, rows: tuple[Integers, Integers, Any], lane: int,
) -> tuple[list[dict[str, Any]], dict[str, float]]:  # fmt: skip
    """An entry for each line with all that it took, over the capture, in ns, and what no line is known of; the bytes
    are those of one step.

    `idle` are the stretches in which a GPU was idle inside the steps; `waits` events and their ns by what they do (wait
    for a value or for a copy to a device, make tensors of lists); `rows` host event, frame and duration of each;
    `lane` the thread of the steps.
    """
    count = len(lined.frames) + 1  # the last one, −1, means unknown
    pieces = lined.pieces
    length = pieces.end - pieces.start
    loading = host.named([name.startswith(_LOADING) for name in host.names])
    amounts: dict[str, Any] = {
        "host_ns": _summed(pieces.frame, length, count),
        "python_ns": _summed(pieces.frame, np.where(pieces.working, 0, length), count),
        "loading_ns": _summed(
            pieces.frame, length - pieces.free_of(Union(host.start[loading], host.end[loading])), count
        ),
        "idle_ns": _summed(pieces.frame, length - pieces.free_of(idle), count) if idle is not None else None,
    }
    for name, (events, ns) in waits.items():
        of = frames_of(lined, events)
        amounts[f"{name}_ns"] = _summed(of, ns, count)
        amounts[f"{name}s"] = _summed(of, np.ones(len(events)), count)
    if idle is not None:  # the GPU also waits outside of the host's steps
        amounts["idle_ns"][-1] += max(idle.length - amounts["idle_ns"].sum(), 0.0)
    launched, of_rows, duration = rows
    amounts["between_ns"] = amounts["host_ns"]
    if idle is None:  # the rows ran on the host
        own = np.where(host.lane[launched] == lane, np.nan_to_num(duration), 0.0)
        amounts["between_ns"] = np.maximum(amounts["host_ns"] - _summed(lined.caller[launched], own, count), 0.0)
    amounts["kernel_ns"] = _summed(of_rows, np.nan_to_num(duration), count)
    amounts["kernels"] = _summed(of_rows, np.ones(len(launched)), count)
    _share_out(lined.frames, amounts)
    found: list[dict[str, Any]] = []
    library = _main_library(host, lined)
    unknown = {name: float(values[-1]) for name, values in amounts.items() if values is not None}
    for number, (frame, path) in enumerate(zip(lined.frames, short(lined.frames), strict=True)):
        known = {name: float(values[number]) for name, values in amounts.items() if values is not None}
        if not any(known.values()) and not (bytes_ or {}).get(number):
            continue
        found.append(
            {"text": text_of(path), "file": path.file, "line": frame.line, "function": frame.function}
            | {"exact": frame.exact, "compiled": frame.compiled, "code": code_of(frame)}
            | {"library": library.get(number, "")}
            | known
            | ({"bytes": bytes_.get(number, 0.0)} if bytes_ is not None else {})
        )
    return sorted(found, key=lambda one: -max(one["host_ns"], one["kernel_ns"]))[:_MOST], unknown


def _taken(values: Integers, events: Integers) -> Integers:
    return np.where(events >= 0, values[np.maximum(events, 0)], -1) if len(values) else np.full(len(events), -1)


def frames_of(lined: Lined, events: Integers) -> Integers:
    """The frame of each event: the user's, else the library's."""
    frame = _taken(lined.frame, events)
    return np.where(frame >= 0, frame, _taken(lined.library, events))


def _summed(frame: Integers, amount: Any, count: int) -> Any:
    place = np.where(frame >= 0, frame, count - 1)
    return np.bincount(place, weights=np.asarray(amount, float), minlength=count).astype(float)


def _share_out(frames: list[SourceFrame], amounts: dict[str, Any]) -> None:
    """Give what is known of a function as a whole (line 0) to its lines, as far as they are known: by the host's time
    of each. A function with very many lines is marked as a whole after the first few thousand."""
    by_function: dict[tuple[str, str], list[int]] = {}
    for number, frame in enumerate(frames):
        if frame.line and frame.exact:
            by_function.setdefault((frame.file, frame.function), []).append(number)
    for whole in [number for number, frame in enumerate(frames) if not frame.line]:
        lines = by_function.get((frames[whole].file, frames[whole].function), [])
        weight = amounts["host_ns"][lines]
        if weight.sum() <= 0:
            continue
        for values in {id(v): v for v in amounts.values() if v is not None}.values():
            values[lines] += values[whole] * weight / weight.sum()
            values[whole] = 0.0


def _main_library(host: HostEvents, lined: Lined) -> dict[int, str]:
    """Return for each line the library's frame in which its operators take the most time."""
    both = np.flatnonzero((lined.caller >= 0) & (lined.library >= 0))
    pairs, which = np.unique(
        np.stack([lined.caller[both], lined.library[both]], 1).reshape(-1, 2), axis=0, return_inverse=True
    )
    time = np.bincount(which.reshape(-1), weights=host.self_ns[both], minlength=len(pairs))
    names = [f"{shown(frame.file)} in {frame.function}" for frame in lined.frames]
    return {int(pairs[i, 0]): names[int(pairs[i, 1])] for i in np.argsort(time, kind="stable").tolist()}


def code_of(frame: SourceFrame) -> str:
    """The text of a line, where its file is here and it is the line that ran."""
    known = (frame.exact or frame.compiled) and frame.line and Path(frame.file).is_absolute()
    return linecache.getline(frame.file, frame.line).strip()[:200] if known else ""
