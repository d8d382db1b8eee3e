"""The hottest lines or instructions inside kernels, where a report of Nsight Compute holds samples of them."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.render.page import SCREEN, WHOLE, Section
from perfkit.render.report import About
from perfkit.render.tables.code import SHOWN, hot_tables

AFTER = "kernels"
_MORE = "`perfkit inspect FILE.ncu-rep` shows every kernel; with --out hot.html the whole code, shaded."


def sections(about: About) -> Iterator[Section]:
    """Yield the tables of each kernel; on a terminal those of the first."""
    for place, kernel in enumerate(about.backend.hot):
        fold = WHOLE if place else SCREEN
        for number, table in enumerate(hot_tables(kernel, SHOWN)):
            yield Section(table=table, notes=[] if place or number else [_MORE], fold=WHOLE if number else fold)
