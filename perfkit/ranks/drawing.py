"""Ranks as kernel tables on one clock, with what each collective waits, and which kernel waits for which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from perfkit.ranks import clocks
from perfkit.ranks.rank_group import RankGroup
from perfkit.ranks.rank_table import RankTable
from perfkit.ranks.results import RankClock
from perfkit.table import KernelTable, conform

_WORTH = 0.05  # of a collective's time on the rank that waits: less is as long as the clocks are apart
NOT_ALIGNED = "Its clock could not be aligned: no collective ended on it and on the first rank."


@dataclass(frozen=True)
class Drawing:
    """A table a rank, in the order of `ranks`: starts are on the first rank's clock, `wait_ns` is known of collectives.

    `ties` has a line for each wait, the longest first: the late rank and the row of its table, the waiting rank and its
    row (ranks by their place in `ranks`).
    """

    ranks: list[int]
    tables: list[KernelTable]
    ties: np.ndarray = field(default_factory=lambda: np.zeros((0, 4), np.int64))

    def joined(self) -> KernelTable:
        """All ranks as one kernel table, in the order of their starts."""
        import pandas as pd

        frame = pd.concat([table.frame for table in self.tables], ignore_index=True)
        frame = frame.sort_values(["start_ns", "rank"], kind="stable", ignore_index=True)
        frame["order"] = np.arange(len(frame))
        warnings = [f"rank {r}: {w}" for r, t in zip(self.ranks, self.tables, strict=True) for w in t.warnings]
        return KernelTable(conform(frame), warnings, {"reader": "ranks"}, {})

    def first_step(self) -> Drawing:
        """The rows of the first step alone."""
        kept = [(table.frame["step"] == 0).fillna(False).to_numpy(bool) for table in self.tables]
        number = [np.cumsum(rows) - 1 for rows in kept]
        tables = [
            KernelTable(t.frame[rows].reset_index(drop=True), t.warnings, t.source, t.facts)
            for t, rows in zip(self.tables, kept, strict=True)
        ]
        ties = [(a, number[a][i], b, number[b][j]) for a, i, b, j in self.ties.tolist() if kept[a][i] and kept[b][j]]
        return Drawing(self.ranks, tables, np.array(ties, np.int64).reshape(-1, 4))


def draw(job: RankGroup, whole: Mapping[int, KernelTable] | None = None) -> Drawing:
    """The ranks of `job` on one clock. `whole` are their tables by rank, with all columns; without it only those are
    known that comparing ranks needs."""
    tables = [
        _table(member, job.ranks[0], clock, _waits(job, i), (whole or {}).get(member.rank))
        for i, (member, clock) in enumerate(zip(job.ranks, job.clocks, strict=True))
    ]
    return Drawing([member.rank for member in job.ranks], tables, _ties(job))


def _waits(job: RankGroup, column: int) -> np.ndarray:
    """Return the waiting of each row of a member, ns; NaN for all but matched collectives."""
    rows = job.matched.rows[:, column]
    found = np.full(len(job.ranks[column].frame), np.nan)
    found[rows[rows >= 0]] = job.waiting.wait[rows >= 0, column]
    return found


def _table(
    member: RankTable, first: RankTable, clock: RankClock, waits: np.ndarray, whole: KernelTable | None
) -> KernelTable:
    import pandas as pd

    # Rows of a GPU's table keep their index; those of a CPU are made of operators and threads.
    frame = member.frame if whole is None or not member.on_gpu else whole.frame.loc[member.frame.index]
    start = clocks.on_first(member, first, clock, member.start)
    frame = frame.reset_index(drop=True).assign(
        start_ns=start, wait_ns=waits, rank=pd.array(np.full(len(frame), member.rank), "Int64")
    )
    said, facts = (whole.warnings, whole.facts) if whole else ([], {})
    warnings = [*said, *([] if clock.offset_ns is not None else [NOT_ALIGNED])]
    return KernelTable(conform(frame), warnings, {"path": member.path}, facts)


def _ties(job: RankGroup) -> np.ndarray:
    """Late → waiting, of every collective whose rank waits for a share of it that can be seen, and for
    longer than the two clocks are apart: with less an arrow could point the wrong way."""
    wait, duration, rows = np.nan_to_num(job.waiting.wait), job.waiting.duration, job.matched.rows
    if not len(rows):
        return np.zeros((0, 4), np.int64)
    late = np.nanargmax(job.waiting.lag, axis=1)
    worth = (wait > 0) & (wait >= _WORTH * np.nan_to_num(duration))
    apart = np.array([np.inf if clock.residual_ns is None else clock.residual_ns for clock in job.clocks])
    worth &= wait > apart[None, :] + apart[late][:, None]
    k, waiting = np.nonzero(worth)
    longest = np.argsort(-wait[k, waiting], kind="stable")
    k, waiting = k[longest], waiting[longest]
    return np.stack([late[k], rows[k, late[k]], waiting, rows[k, waiting]], axis=1).astype(np.int64)
