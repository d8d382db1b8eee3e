"""Several ranks side by side: how long each took for its part of a step, and how much memory it held."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from perfkit.analysis.results import BackendReport, Report
from perfkit.render.cells import Table, figures, table, words
from perfkit.run_folder import RankRun


def ranks_tables(report: Report) -> Iterator[Table]:
    """One table of all backends that ran on several ranks; nothing where none did.

    All ranks begin a timed step together. One that is done earlier waited less, or in none of its collectives.
    """
    rows = [(backend, rank) for backend in report.backends for rank in backend.ranks if rank.steps_ns]
    if not rows:
        return
    yield table(
        "Ranks",
        words("backend", [backend.name for backend, _ in rows], name=True),
        words("rank", [str(rank.rank) for _, rank in rows]),
        words("device", [_place(rank) for _, rank in rows]),
        figures("step", [statistics.median(rank.steps_ns) for _, rank in rows], "ns"),
        figures("last in", [_last(backend, rank) for backend, rank in rows], "%"),
        figures("memory", [rank.peak_bytes for _, rank in rows], "iB"),
        notes=["A step is as long as its slowest rank; `last in` is the share of steps in which that was this one."],
    )


def _place(rank: RankRun) -> str:
    return f"{rank.host} {rank.device}".strip()


def _last(backend: BackendReport, rank: RankRun) -> float:
    """The share of timed steps in which this rank was the last one to be done."""
    latest = [max(times) for times in zip(*(r.steps_ns for r in backend.ranks), strict=True)]
    return sum(own == last for own, last in zip(rank.steps_ns, latest, strict=True)) / len(rank.steps_ns)
