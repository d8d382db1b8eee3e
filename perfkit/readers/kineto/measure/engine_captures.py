"""Kernels that CUDA graphs of a serving engine replay, by traces of their captures that it wrote next to its trace.

An engine captures a graph for each size of a batch, or one for each piece of the model. A replay is of a capture that
launched kernels of the same names in the same order, which traces of AMD GPUs record; where launches have no names, of
the only one whose kinds and families fit. Of equal pieces each replay is the next one. Of several sizes the smallest
counts that holds the tokens of the iteration, as engines choose. What is not certain keeps the launch's place.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.columns import Integers
from perfkit.cost import CostModel
from perfkit.engines import iteration_of
from perfkit.errors import InputError
from perfkit.readers.kineto.attribution.columns import place
from perfkit.readers.kineto.attribution.gpu_steps import Launches
from perfkit.readers.kineto.decode.events import ANNOTATION, KERNEL, RUNTIME, DeviceEvents, HostEvents
from perfkit.readers.kineto.decode.read import read_events
from perfkit.readers.kineto.measure.captured import (
    BEGIN,
    END,
    Capture,
    ReplayedActivities,
    fits,
    kind_of,
    without_passes,
)
from perfkit.readers.kineto.measure.rows import on_device, wanted
from perfkit.run_folder import DeclaredKernel
from perfkit.tree.placement import Placement

_MARK = re.compile(r"capture_(\d{1,6})_\w+")  # around the capture of a graph for that number of tokens
_NAMED = re.compile(r"bs_(\d{1,6})")
_FOLDERS = ("capture*/*.json", "capture*/*.json.gz")
_MOST = 64  # traces of captures that are read


@dataclass(frozen=True)
class Window(Capture):
    """The capture of one graph: the names of its kernels ("" where a launch has none), and the tokens it is for
    (0: not known)."""

    names: tuple[str, ...] = ()
    size: int = 0


class PhaseReplays(ReplayedActivities):
    """Replays whose phase is that of their iteration."""

    def placement(self) -> list[Placement]:
        """Return the places without passes."""
        return without_passes(super().placement())


def captures_of(trace: Path) -> list[Path]:
    """Return the traces of captures that lie next to a trace."""
    return sorted({path for pattern in _FOLDERS for path in trace.parent.glob(pattern)})[:_MOST]


def find(
    host: HostEvents, device: DeviceEvents, launches: Launches, trace: Path | None, costs: CostModel,
    declared: Mapping[str, DeclaredKernel], matmul_precision: str,
) -> ReplayedActivities | None:  # fmt: skip
    """Return which launch of which capture each activity of a replay is; None where no capture is next to `trace`."""
    replayed = np.flatnonzero(launches.replayed)
    paths = captures_of(trace) if trace is not None and len(replayed) else []
    if not paths:
        return None
    order = replayed[np.lexsort((device.start[replayed], launches.call[replayed]))]
    groups = np.split(order, np.flatnonzero(np.diff(launches.call[order])) + 1)
    tokens = _tokens(host, [int(launches.call[one[0]]) for one in groups])
    windows = [window for path in _needed(paths, tokens) for window in _read(path, costs, declared, matmul_precision)]
    found = PhaseReplays(windows, *(np.full(len(device), -1, np.int64) for _ in range(3)))
    last = -1
    for one, wanted_tokens in zip(groups, tokens, strict=True):
        last = at = _chosen(windows, device, one, wanted_tokens, last, costs)
        if at >= 0:
            found.capture[one], found.launch[one] = at, np.arange(len(one))
            found.replay[one] = int(launches.call[one[0]])
    return found


def _tokens(host: HostEvents, calls: Sequence[int]) -> list[int]:
    """The tokens of the iteration around each call, 0 where they are not known."""
    iterations = {code: one for code, name in enumerate(host.names) if (one := iteration_of(name))}
    around = host.nearest((host.category == ANNOTATION) & np.isin(host.name, list(iterations)))
    found = []
    for call in calls:
        served = iterations.get(int(host.name[around[call]])) if around[call] >= 0 else None
        new = (served.generating if served.new_tokens is None else served.new_tokens) if served else 0
        known = served is not None and (served.prompt_tokens is not None or not served.prompts + served.unsplit)
        found.append((served.prompt_tokens or 0) + new if served is not None and known else 0)
    return found


def _needed(paths: Sequence[Path], tokens: Sequence[int]) -> list[Path]:
    """The traces that iterations of these `tokens` may use: of those that name a size only some."""
    sizes = {path: int(named[1]) for path in paths if (named := _NAMED.search(path.name))}
    if not sizes or 0 in tokens:
        return list(paths)
    used = {min((size for size in sizes.values() if size >= one), default=0) for one in tokens}
    return [path for path in paths if sizes.get(path, 0) in used or path not in sizes]


def _chosen(
    windows: Sequence[Window], device: DeviceEvents, replay: Integers, tokens: int, last: int, costs: CostModel
) -> int:
    """The capture that a replay is of, −1 where that is not certain; `last` is that of the replay before it."""
    names = tuple(device.names[code] for code in device.name[replay].tolist())
    same = [i for i, one in enumerate(windows) if all(one.names) and _alike(one, names, device.kind[replay])]
    if not same:
        families = np.array([costs.family(name) for name in names], object)
        same = [
            i for i, one in enumerate(windows) if not all(one.names) and fits(one, device.kind[replay], families, costs)
        ]
        same = same if len({windows[i].size for i in same}) == len(same) else []  # of equal pieces none is certain
    same = [i for i in same if not 0 < windows[i].size < tokens]
    sizes = {windows[i].size for i in same}
    if len(sizes) > 1:
        size = min((size for size in sizes if 0 < tokens <= size), default=-1)
        same = [i for i in same if windows[i].size == size]
    return next((i for i in same if i > last), same[0] if same else -1)


def _alike(one: Window, names: tuple[str, ...], kinds: Integers) -> bool:
    """Return whether a capture has kernels of these names, and copies and fills where the replay has them."""
    if len(one.names) != len(names) or not np.array_equal(one.kind, kinds):
        return False
    return all(mine in (said, _NO_KERNEL) for mine, said in zip(one.names, names, strict=True))


_NO_KERNEL = "copy or fill"


def _read(
    path: Path, costs: CostModel, declared: Mapping[str, DeclaredKernel], matmul_precision: str
) -> Iterator[Window]:
    """The captures in a trace, in order; none in one that is damaged."""
    try:
        events = read_events(path, wanted(costs, declared))
        kernels = _kernels(path)
    except (InputError, OSError, EOFError, ValueError, LookupError, TypeError, AttributeError):
        return
    host, places = events.host, place(events.host, events.device).places
    rows = on_device(host, places.wrapper, costs, declared, matmul_precision)
    sizes = {code: int(mark[1]) for code, name in enumerate(host.names) if (mark := _MARK.fullmatch(name))}
    around = host.nearest((host.category == ANNOTATION) & np.isin(host.name, list(sizes)))
    named = _NAMED.search(path.name)
    runtime = host.category == RUNTIME
    begins, ends = (
        np.sort(np.flatnonzero(runtime & host.named([name.endswith(word) for name in host.names])))
        for word in (BEGIN, END)
    )
    kind = np.array([kind_of(name) for name in host.names], np.int64)[host.name]
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=False):
        inside = (host.lane == host.lane[begin]) & (host.start >= host.end[begin]) & (host.end <= host.start[end])
        launches = np.flatnonzero(runtime & inside & (kind >= 0))
        launches = launches[np.argsort(host.start[launches], kind="stable")]
        names = tuple(
            kernels.get(int(host.correlation[i]), "") if kind[i] == KERNEL else _NO_KERNEL for i in launches.tolist()
        )
        size = sizes[int(host.name[around[begin]])] if around[begin] >= 0 else int(named[1]) if named else 0
        yield Window(host, places, rows, launches, kind[launches], names, size)


def _kernels(path: Path) -> dict[int, str]:
    """The names of kernels by the correlation of their launch, which HIP's calls record."""
    raw = path.read_bytes()
    document: Any = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    arguments = (e.get("args", {}) for e in document["traceEvents"] if e.get("cat") == "cuda_runtime")
    return {int(a["correlation"]): str(a["kernel"]) for a in arguments if "kernel" in a and "correlation" in a}
