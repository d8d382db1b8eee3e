"""Sums of launches, as profilers print them by name: how often and how long, without a timeline.

A row of the table is a launch, so a sum becomes as many rows as it counts, each with the mean of its time and work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from perfkit import table
from perfkit.cost import CostModel
from perfkit.errors import InputError
from perfkit.readers.finish import finish
from perfkit.readers.kernel_names import short_name
from perfkit.readers.nsys.activity import KERNEL
from perfkit.table import FLOP_COLUMNS

_MOST = 2_000_000  # launches that become rows
_MEANS = (
    "the file has sums, and no timeline: each launch is shown with the mean of all of its name, and steps, idle time, "
    "overlap and the spread of times are unknown"
)


@dataclass
class Sum:
    """Launches of one name: how many, and their time. `columns` are those of each launch, as the table names them;
    `work` those that the launches share evenly."""

    name: str
    count: int
    total_ns: float
    kind: str = KERNEL
    step: int = -1  # none
    columns: dict[str, Any] = field(default_factory=dict)
    work: dict[str, float] = field(default_factory=dict)


def table_of_sums(
    sums: list[Sum], source: dict[str, str], facts: dict[str, Any], said: list[str], more: str
) -> table.KernelTable:
    """Return the kernel table of some sums; `more` says how to get what they lack.

    Raises `InputError` where none can be used, or more launches than a table holds.
    """
    path = source["path"]
    good = [kernel for kernel in sums if kernel.count > 0 and 0 <= kernel.total_ns < float("inf")]
    launches = sum(kernel.count for kernel in good)
    if not launches:
        raise InputError(f"{path} has sums of {source['reader']}, and none of a kernel or copy that can be used.", more)
    if launches > _MOST:
        raise InputError(f"{path} counts {launches} launches, more than the {_MOST} that a report is made of.", more)
    if len(good) < len(sums):
        said = [*said, f"{len(sums) - len(good)} rows are damaged, or count nothing, and are left out"]
    counts = [kernel.count for kernel in good]
    columns: dict[str, Any] = {
        name: [value for kernel in good for value in [kernel.columns.get(name)] * kernel.count]
        for name in {"module", "operator", "pass", *(name for kernel in good for name in kernel.columns)}
    }
    for name in {name for kernel in good for name in kernel.work}:
        columns[name] = np.repeat([kernel.work.get(name, np.nan) / kernel.count for kernel in good], counts)
    for group, of_group in (("flop", FLOP_COLUMNS), ("bytes", ("bytes_read",))):
        if there := [columns[name] for name in of_group if name in columns]:
            columns[f"{group}_origin"] = np.where(np.isfinite(there).any(axis=0), "model", "absent")
    columns |= {
        "name": [name for kernel in good for name in [kernel.name] * kernel.count],
        "kind": [kind for kernel in good for kind in [kernel.kind] * kernel.count],
        "step": np.repeat([kernel.step for kernel in good], counts),
        "duration_ns": np.repeat([kernel.total_ns / kernel.count for kernel in good], counts),
    }
    finish(columns, CostModel(), {}, {}, "")
    columns["short_name"] = [short_name(kernel.name) for kernel in good for _ in range(kernel.count)]
    return table.build(columns, [*said, f"{_MEANS}. {more}"], source, {"steps": 1, **facts})


def path_of(path: Path, ending: str, other: str) -> Path | None:
    """Return the file next to `path` that has `other` in the place of `ending` in its name, if there is one."""
    beside = path.with_name(path.name.replace(ending, other))
    return beside if beside != path and beside.is_file() else None
