"""The rank of an export of Nsight Systems, its collectives, and its steps on the clock of other ranks.

The rank is what the environment of `nsys` said (torchrun sets RANK and WORLD_SIZE for `torchrun … nsys profile …`),
else the file's name. Exports hold no arguments of collectives: the kernel's name has operation, dtype, algorithm and
protocol; where it is NCCL's kernel for any of them, the NVTX range around the launch (`ncclAllReduce` of NCCL,
`nccl:all_reduce` of PyTorch) has the operation. A message's size is known where PyTorch's range has the shapes of its
tensors (`emit_nvtx(record_shapes=True)`) and input and output are as large. The group is unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.cost.model import ITEM_BYTES
from perfkit.errors import InputError
from perfkit.intervals import Steps, Union
from perfkit.readers import collective_names
from perfkit.readers.nsys.activity import COPY, GRAPH, KERNEL, Activity
from perfkit.readers.nsys.database import Database, Integers, opened

NAMED = re.compile(r"rank[-_.]?(\d{1,6})", re.IGNORECASE)
_RANGE = re.compile(r"(?:^|/)(?:nccl:(\w+)|nccl([A-Z]\w+))")
_SIZES = re.compile(r"sizes = \[\[([\d, ]+)\]")
_AS_LARGE = ("all_reduce", "broadcast", "reduce")  # what a rank gets out is as large as what it puts in
_ENVIRONMENT = "DeviceEnvironment"


def distributed(database: Database, path: Path) -> dict[str, Any]:
    """Rank, number of ranks (0: unknown) and backend; empty for an export that names no rank."""
    said = _environment(database)
    rank, world = _count(said.get("RANK", "")), _count(said.get("WORLD_SIZE", ""))
    if rank is None or not world or rank >= world:
        named = NAMED.search(path.name)
        rank, world = (int(named[1]), 0) if named else (None, 0)
    return {} if rank is None else {"rank": rank, "world_size": world, "backend": "nccl"}


def names_its_rank(path: Path) -> bool:
    """Return whether the export at `path` names its rank."""
    try:
        with opened(path) as database:
            return bool(distributed(database, path))
    except InputError:  # reading it says what is wrong with it
        return NAMED.search(path.name) is not None


def _environment(database: Database) -> dict[str, str]:
    """The environment that nsys was started in, `NAME=VALUE;…` in one text."""
    texts = [v for name, v in database.texts("TARGET_INFO_SYSTEM_ENV", ("name", "value")) if name == _ENVIRONMENT]
    return dict(entry.split("=", 1) for text in texts for entry in text.split(";") if "=" in entry)


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 7 else None


def began(database: Database) -> int:
    """The host's clock at the export's time 0, in ns; 0 where it is unknown."""
    found = database.integers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"]
    return int(found[0]) if len(found) and found[0] > 0 else 0


def columns_of(activity: Activity, ranges: Sequence[str | None]) -> dict[str, Any]:
    """The columns of collectives, of the kernels' names and the paths of ranges that they were launched in."""
    talks = talking(activity)
    count = len(activity)
    texts: dict[str, list[str | None]] = {
        name: [None] * count for name in ("collective", "algorithm", "protocol", "shapes")
    }
    size = np.full(count, np.nan)
    for i in np.flatnonzero(talks).tolist():
        name, path = activity.name[i], ranges[i] or ""
        operation, elements = _operation(name, path)
        dtype, way = collective_names.dtype_of(name), collective_names.way_of(name)
        texts["collective"][i] = operation or None
        texts["algorithm"][i], texts["protocol"][i] = way.algorithm or None, way.protocol or None
        known = elements is not None and dtype in ITEM_BYTES and operation in _AS_LARGE
        texts["shapes"][i] = f"{operation} {dtype}[{elements}]" if known else f"{operation} {dtype}".strip() or None
        size[i] = elements * ITEM_BYTES[dtype] if known and elements is not None else np.nan
    return {**texts, "message_bytes": size}


def talking(activity: Activity) -> Any:
    """Which activities are kernels of collectives."""
    known = {name: collective_names.is_collective(name) for name in set(activity.name)}
    return activity.of(KERNEL) & np.array([known[name] for name in activity.name], bool)


def _operation(kernel: str, path: str) -> tuple[str, int | None]:
    """The collective, "" where neither name nor range has it, and the elements of its tensor where they are known."""
    named = list(_RANGE.finditer(path))
    words = next((w for found in reversed(named) for w in found.groups() if w), "")
    sizes = _SIZES.search(path, named[-1].start()) if named else None
    elements = math.prod(int(word) for word in sizes[1].split(",") if word.strip()) if sizes else None
    return collective_names.spelled(collective_names.collective_of(kernel) or words), elements


def per_step(activity: Activity, steps: Steps) -> list[dict[str, Any]]:
    """For each step its wall time, and of that the GPU's busy time, computing, copying and talking (unions each)."""
    talks, kernel = talking(activity), activity.of(KERNEL, GRAPH)
    chosen = {
        "busy_ns": np.ones(len(activity), bool),
        "compute_ns": kernel & ~talks,
        "communication_ns": talks,
        "copy_ns": activity.of(COPY),
    }
    parts = {name: _within(activity, rows, steps) for name, rows in chosen.items()}
    lengths = (steps.end - steps.start).tolist()
    return [
        {"step": i, "step_ns": length}
        | {name: int(values[i]) for name, values in parts.items()}
        | {"idle_ns": length - int(parts["busy_ns"][i])}
        for i, length in enumerate(lengths)
    ]


def _within(activity: Activity, rows: Any, steps: Steps) -> Integers:
    """Return how much of each step the union of these rows covers."""
    cover = Union(activity.start[rows], activity.end[rows])
    return cover.until(steps.end) - cover.until(steps.start)
