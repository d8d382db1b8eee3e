"""DataLoaders: who limits, what their workers do by line, and the step with other numbers of workers."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit import units
from perfkit.analysis.line_results import SourceLine
from perfkit.analysis.loading import sentences
from perfkit.analysis.loading_results import STEP, LoaderWorker, Loading
from perfkit.analysis.words import percent
from perfkit.render import sentences as words_of
from perfkit.render.cells import Table, clean, column_scale, figures, table, words
from perfkit.render.page import Section
from perfkit.render.report import About

AFTER = "kinds"
_SIDE_BY_SIDE = 4  # workers with a column of their own
_NOTE = (
    "Replayed from the measured times of batches, and of what the step does between two of them. The cores are shared "
    "with whatever else runs; disks and networks are taken to serve more workers as well as these."
)


def sections(about: About) -> Iterator[Section]:
    """Yield text and tables of each loader."""
    several = len(about.backend.loading) > 1
    for place, known in enumerate(about.backend.loading, 1):
        which = f" {place}" if several else ""
        yield Section(title=f"Data loading{which}", text=[_limit(known), *sentences(known)], fold=about.alone)
        for made in (_workers(known, which), _lines(known, which, about.rows), _predictions(known, which)):
            if made is not None:
                yield Section(table=made, fold=about.alone)


def _limit(known: Loading) -> str:
    waits = f"{percent(known.wait_ns / known.step_ns)} of the timed step waits for batches" if known.step_ns else ""
    if known.limit == STEP:
        return f"The loader keeps up: {waits}."
    makers = units.many(known.workers, "worker") if known.workers else "its own thread"
    return f"{waits}, which are made by {makers}; what limits: {known.limit or 'unknown'}."


def _workers(known: Loading, which: str) -> Table | None:
    rows = known.processes
    if not rows:
        return None
    scale = column_scale([row.batch.time_ns for row in rows], "ns")
    missing = known.workers - len(rows)
    return table(
        f"Workers{which}",
        words("worker", [str(row.worker) for row in rows], name=True),
        figures("batches", [float(row.batches) for row in rows], "count"),
        figures("a batch", [row.batch.time_ns for row in rows], "ns", scale=scale),
        figures("computing", [row.batch.computing_ns for row in rows], "ns", scale=scale),
        figures("without a core", [row.batch.queued_ns for row in rows], "ns", scale=scale),
        figures("waiting", [row.batch.other_ns for row in rows], "ns", scale=scale),
        figures("reads", [row.batch.read_bytes for row in rows], "iB"),
        notes=[f"{missing} left nothing: they ended before the recording did."] if missing > 0 else [],
    )


def _lines(known: Loading, which: str, limit: int | None) -> Table | None:
    rows = known.lines[:limit]
    if not rows or known.batch is None:
        return None
    whole = known.batch.time_ns
    times = [one.share * whole for one in rows]
    scale = column_scale(times, "ns")
    apart = known.processes if 1 < len(known.processes) <= _SIDE_BY_SIDE else []
    return table(
        f"Lines of workers{which}",
        words("line", [words_of.line(one) for one in rows], name=True),
        figures("a batch", times, "ns", scale=scale),
        *(
            figures(f"worker {one.worker}", [_of(one, row) for row in rows], "ns", scale=scale, priority=2)
            for one in apart
        ),
        words("code", [clean(one.code) for one in rows], priority=2, least=20),
        notes=["Sampled while steps were recorded: the user's innermost line, else the library's."],
    )


def _of(worker: LoaderWorker, row: SourceLine) -> float | None:
    """The time that a worker's batch spends in the line of `row`."""
    found = next((line for line in worker.lines if words_of.line(line) == words_of.line(row)), None)
    return found.share * worker.batch.time_ns if found else None


def _predictions(known: Loading, which: str) -> Table | None:
    rows = known.predictions
    if len(rows) < 2:
        return None
    return table(
        f"The step by number of workers{which}",
        words("workers", [str(row.workers or "none") for row in rows], name=True),
        figures("step", [row.step_ns for row in rows], "ns"),
        figures("measured", [known.step_ns if row.workers == known.workers else None for row in rows], "ns"),
        words("limited by", [row.limit for row in rows]),
        notes=[_NOTE],
    )
