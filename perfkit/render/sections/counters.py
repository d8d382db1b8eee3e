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
        rows = [one for one in about.backend.counters if one.of == of]
        if rows:
            yield Section(table=_table(title, of, rows[: about.rows]), fold=about.alone)


def _table(title: str, of: str, rows: list[CounterUse]) -> Table:
    covered = [one.covered_ns / one.busy_ns if one.busy_ns else None for one in rows]
    return table(
        title,
        words({"family": "type"}.get(of, of), [one.key for one in rows], name=True),
        figures("busy", [one.busy_ns for one in rows], "ns"),
        figures("sampled", covered, "%"),
        figures("DRAM reads", [one.dram_read for one in rows], "%"),
        figures("DRAM writes", [one.dram_write for one in rows], "%"),
        figures("DRAM", [one.dram for one in rows], "%"),
        figures("moved", [one.dram_bytes for one in rows], "B"),
        figures("L2", [one.l2 for one in rows], "%"),
        figures("tensor", [one.tensor for one in rows], "%"),
        figures("SMs active", [one.sm for one in rows], "%"),
        notes=[_NOTE],
    )
