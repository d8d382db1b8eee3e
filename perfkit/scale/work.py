"""One rank's work on its share of the batch, and when the gradient of each parameter is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfkit.profile_names import BACKWARD, OPTIMIZER
from perfkit.scale.one_rank import OneRank, StepRow
from perfkit.scale.parameters import Parameter

SHORTEST_NS = 3e3  # a kernel of a GPU gets no shorter, however little it has to do
_LAUNCH_NS = {True: 3e3, False: 5e3}  # a small copy, on a GPU and on a CPU


@dataclass(frozen=True)
class RankWork:
    """The rows of a rank that has `share` of the measured batch, and steps `part` of the optimizer's work."""

    one: OneRank
    rows: list[StepRow]

    @property
    def ns(self) -> float:
        """Its rows with the idle time before each."""
        return sum(row.ns + row.gap for row in self.rows)

    def until(self, phase: str) -> float:
        """Return the end of a phase's last row; 0 for a phase without rows."""
        ends = self.ends()
        return max((end for row, end in zip(self.rows, ends, strict=True) if row.phase == phase), default=0.0)

    def ends(self) -> list[float]:
        """The end of each row, in ns from the step's start."""
        now, found = 0.0, []
        for row in self.rows:
            now += row.gap + row.ns
            found.append(now)
        return found

    def moved_ns(self, bytes_: float) -> float:
        """Return the time that sharing takes to read and write `bytes_`, a launch at least; 0 where the rows include
        it."""
        if self.one.way:
            return 0.0
        return max(bytes_ / self.one.bandwidth * 1e9, _LAUNCH_NS[self.one.on_gpu]) if bytes_ else 0.0


def work(one: OneRank, share: float = 1.0, part: float = 1.0) -> RankWork:
    """The step of a rank with `share` of the batch and `part` of the optimizer's state.

    Kernels shrink in proportion, those of a GPU not below `SHORTEST_NS`; the host launches no faster than it did.
    """
    least = SHORTEST_NS if one.on_gpu else 0.0
    rows = []
    for row in one.rows:
        factor = part if row.phase == OPTIMIZER else share
        rows.append(replace(row, ns=max(row.ns * factor, min(row.ns, least))))
    total = sum(row.ns + row.gap for row in rows)
    if one.host_ns and one.host_ns > total:
        more = (one.host_ns - total) / len(rows)
        rows = [replace(row, gap=row.gap + more) for row in rows]
    return RankWork(one, rows)


def ready(made: RankWork, parameters: Sequence[Parameter]) -> dict[str, float]:
    """When the gradient of each trained parameter is complete: at the last row of its module's backward.

    Where no row names its module, the module around it counts; else the end of the backward pass.
    """
    last: dict[str, float] = {}
    for row, end in zip(made.rows, made.ends(), strict=True):
        path = row.module if row.phase == BACKWARD else ""
        while path:
            last[path] = end
            path = path.rpartition(".")[0]
    end = made.until(BACKWARD)
    return {p.name: _last(p.name, last, end) for p in parameters if p.trained}


def _last(name: str, last: dict[str, float], end: float) -> float:
    path = name.rpartition(".")[0]
    while path and path not in last:
        path = path.rpartition(".")[0]
    return last.get(path, end)
