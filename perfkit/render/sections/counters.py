"""Counters that were sampled over the capture: device memory, L2 and tensor pipes in each step, pass and family."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.analysis.step_results import CounterUse
from perfkit.render.cells import Table, figures, table, words
from perfkit.render.page import Section
from perfkit.render.report import About

AFTER = "kernels"
_TITLES = {"step": "Counters by step", "pass": "Counters by pass", "family": "Counters by kernel type"}
_NOTE = (
    "Sampled over the whole device while these kernels ran: what ran at the same time counts in both. Shares are of "
    "the peak; kernels shorter than the time between two samples share them with their neighbours."
)


def sections(about: About) -> Iterator[Section]:
    """Yield a table for steps, passes and families each."""
    for of, title in _TITLES.items():
        rows = [counter for counter in about.backend.counters if counter.of == of]
        if rows:
            yield Section(table=_table(title, of, rows[: about.rows]), fold=about.alone)


def _table(title: str, of: str, rows: list[CounterUse]) -> Table:
    covered = [row.covered_ns / row.busy_ns if row.busy_ns else None for row in rows]
    return table(
        title,
        words({"family": "type"}.get(of, of), [row.key for row in rows], name=True),
        figures("busy", [row.busy_ns for row in rows], "ns"),
        figures("sampled", covered, "%"),
        figures("DRAM reads", [row.dram_read for row in rows], "%"),
        figures("DRAM writes", [row.dram_write for row in rows], "%"),
        figures("DRAM", [row.dram for row in rows], "%"),
        figures("moved", [row.dram_bytes for row in rows], "B"),
        figures("L2", [row.l2 for row in rows], "%"),
        figures("tensor", [row.tensor for row in rows], "%"),
        figures("SMs active", [row.sm for row in rows], "%"),
        notes=[_NOTE],
    )
