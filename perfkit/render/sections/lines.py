"""Source lines as a table: what each takes of the host, what it launches, waits for and allocates."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perfkit.analysis.line_results import LineTime
from perfkit.analysis.results import BackendReport
from perfkit.render import sentences
from perfkit.render.cells import Table, column_scale, figures, table, words
from perfkit.render.page import Section
from perfkit.render.report import About

AFTER = "kinds"
_NOTE = (
    "Host is the time of the step's own thread, of which Python lies between operators. A line launches its kernels "
    "itself, and those of its backward pass by being differentiated."
)


def sections(about: About) -> Iterator[Section]:
    """Yield the time of each source line."""
    if made := lines_table(about.backend, about.rows):
        yield Section(table=made, fold=about.alone, view="lines")


def lines_table(backend: BackendReport, limit: int | None = None) -> Table | None:
    """The lines of `backend`, those with the most of the host's time first, and at the end what no line is known of;
    None where none is known."""
    known = [row for row in backend.lines if row.file]
    if not known:
        return None
    rows = known[:limit] + [row for row in backend.lines if not row.file]

    def several(value: Callable[[LineTime], float | None]) -> list[float | None]:
        """An amount of each row; absent in all where no row has any."""
        found = [value(row) for row in rows]
        return found if any(found) else [None] * len(found)

    times = [row.host_ns for row in rows]
    scale = column_scale([*times, *(row.kernel_ns for row in rows)], "ns")
    left = len(known) - len(known[:limit])
    more = [f"{left} more {'line is' if left == 1 else 'lines are'} not shown."] if left else []
    return table(
        "Lines",
        words("line", [sentences.line(row) for row in rows], name=True),
        figures("host", times, "ns", scale=scale),
        figures("Python", [row.python_ns for row in rows], "ns", scale=scale),
        figures("GPU idle", several(lambda row: row.idle_ns), "ns", scale=scale),
        figures("launches", [row.kernel_ns for row in rows], "ns", scale=scale),
        figures("syncs", several(lambda row: row.waits), "count"),
        figures("allocates", several(lambda row: row.bytes), "iB"),
        words("code", [row.code for row in rows], priority=2, least=20),
        notes=[*more, _NOTE],
    )
