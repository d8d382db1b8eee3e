"""From a place under the logdir to what a view shows: reading, analysing and encoding, a step at a time.

Each function is the `make` of a task of the library: it says in `task.stage` what it is doing, and gives a result with
its size in bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.errors import InputError
from perfkit.ranks import link_context
from perfkit.ranks.analyse import of_job
from perfkit.ranks.drawing import draw
from perfkit.ranks.rank_group import together
from perfkit.ranks.rank_table import of_table
from perfkit.readers import read, tables_of
from perfkit.readers.kineto.recorded import host_traces, memory_of
from perfkit.readers.run import Run
from perfkit.render import html, timeline, views
from perfkit.render.pages import ranks as ranks_page
from perfkit.tensorboard.library import Library, Task
from perfkit.tensorboard.logdir import RUN, LogdirFiles

if TYPE_CHECKING:
    from perfkit.analysis.results import Report
    from perfkit.table import KernelTable

_GROUP_BYTES = 3000  # of a group of a report in memory, about


class Makers:
    """The results of one library by place."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def source(self, place: LogdirFiles, task: Task) -> Run | KernelTable:
        """Read `place`."""

        def make(inner: Task) -> tuple[Any, int]:
            inner.stage = task.stage = f"reading {_megabytes(place.size)}"
            source = read(place.path)
            return source, sum(int(t.frame.memory_usage(deep=False).sum()) for t in tables_of(source).values())

        made: Run | KernelTable = self.library.obtain(("source", place.state()), make, task)
        return made

    def report(self, place: LogdirFiles, task: Task) -> Report:
        """The analysis of `place`."""

        def make(inner: Task) -> tuple[Any, int]:
            source = self.source(place, task)
            inner.stage = task.stage = "analysing"
            report = views.report_of(source, place.path, place.name)
            return report, _GROUP_BYTES * sum(len(b.kernels) + len(b.points) for b in report.backends)

        made: Report = self.library.obtain(("report", place.state()), make, task)
        return made

    def report_json(self, place: LogdirFiles, task: Task) -> tuple[bytes, int]:
        """The report of `place` and its page as JSON."""
        report = self.report(place, task)
        return _sized(views.encoded({"report": report, "page": html.report_data(report)}))

    def diff_json(
        self, places: tuple[LogdirFiles, LogdirFiles], backends: tuple[str, str], task: Task
    ) -> tuple[bytes, int]:
        """The difference of two reports as JSON. Raises `InputError` for a backend that is missing."""
        first, second = (self.report(place, task) for place in places)
        try:
            return _sized(views.diff(first, second, backends))
        except KeyError as error:
            raise InputError(f"There is no backend {error} in this run.", "Choose another.") from error

    def ranks_json(self, place: LogdirFiles, task: Task) -> tuple[bytes, int]:
        """Make the report on the traces of ranks in a folder, as a page with its timeline.

        Raises `InputError` where they cannot be compared.
        """
        found, problems = [], []
        files = [path for path in place.files if path.parent == place.path]
        for number, path in enumerate(files, 1):
            task.stage = f"reading rank {number} of {len(files)}"
            try:
                table = read(path)
                assert not isinstance(table, Run)
                found.append(of_table(table))
            except InputError as error:
                problems.append(f"{path.name}: {error.message}")
        if not found:
            raise InputError(" ".join(problems), "Record them again.")
        task.stage = "comparing the ranks"
        job = together(found)
        run = place.path.parent if len(place.files) > len(files) else None
        report = of_job(job, problems, link_context.roofs(found, run), link_context.environment(run))
        return _sized(ranks_page.encoded(ranks_page.page(report), draw(job)))

    def timeline(self, place: LogdirFiles, backend: str, task: Task) -> tuple[bytes, int]:
        """The timeline of one backend as the front end's columns. Raises `InputError` where nothing can be drawn."""
        source = self.source(place, task)
        task.stage = "laying out the timeline"
        made = timeline.packed(source, place.path.name, host_traces(source))
        found = made.get(backend) or (made.get("profile") if place.kind != RUN else None)
        if not found:
            raise InputError("There are no kernels with a duration, so there is no timeline.", "")
        return _sized(found)

    def memory_json(self, place: LogdirFiles, task: Task) -> tuple[bytes, int]:
        """Allocations over time by backend as JSON."""
        source = self.source(place, task)
        name = self.report(place, task).backends[0].name if place.kind != RUN else ""
        task.stage = f"reading {_megabytes(place.size)} again, for its allocations"
        return _sized(views.encoded(memory_of(source, name)))


def _sized(content: bytes) -> tuple[bytes, int]:
    return content, len(content)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
