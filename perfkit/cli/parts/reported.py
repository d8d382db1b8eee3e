"""The report of what was read, as an output: of a run, a profile, or a job of ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.cli.parts.output import Destination, Json, links_of_run, put, show, write

if TYPE_CHECKING:
    from perfkit.analysis.results import Report
    from perfkit.readers.run import Run
    from perfkit.render.output import Output
    from perfkit.render.views import Answers
    from perfkit.table import KernelTable

EVERY_FORMAT = ("html", "md", "txt", "json", "csv")


def output_of(source: Run | KernelTable, path: Path, as_job: bool = True) -> Output:
    """Analyse what was read from `path`; `as_job` lets a run whose processes are ranks be one job."""
    from perfkit.analysis.report.analyse import analyse_any
    from perfkit.readers import tables_of
    from perfkit.render.output import of_report
    from perfkit.table import KernelTable

    if as_job and not isinstance(source, KernelTable):
        from perfkit.cli.parts import rank_groups

        if job := rank_groups.of(source):
            return rank_groups.output_of(job)
    report = analyse_any(source, path)
    return of_report(report, lambda: tables_of(source), lambda: answers(report, source))


def answers(report: Report, source: Run | KernelTable) -> Answers:
    """Return what the HTML page of `report` embeds: timelines, allocations and differences of `source`."""
    from perfkit.readers.kineto.recorded import LARGEST, host_traces, memory_of
    from perfkit.render import timeline, views
    from perfkit.table import KernelTable

    name = report.backends[0].name if report.backends else ""
    made = timeline.embedded(source, name, host_traces(source, largest=LARGEST))
    timelines = made if not isinstance(source, KernelTable) else dict(zip([name], made.values(), strict=False))
    return views.answers(report, timelines, memory_of(source, name))


def of_path(path: Path, wanted: Destination, alone: bool, annotate: bool = False, counters: Path | None = None) -> bool:
    """Read a run or profile, analyse it, write its report, show it, and say where it is.

    Its files are in `wanted.folder`, those of a run else in the run itself. `counters` are joined; with `annotate` the
    listings of a run's programs are written too. Returns whether a profile is unusable.
    """
    from perfkit import readers
    from perfkit.render.output import safe_name

    folder = wanted.folder or (path if path.is_dir() else None)
    name = "report" if alone or folder == path else f"report-{safe_name(path.name)}"
    source = readers.read(path, whole=wanted.folder is not None and "html" in wanted.formats)
    if counters:
        source = joined(source, counters)
    listed = listings(source, folder) if annotate else []
    output = output_of(source, path, as_job=not (annotate or counters))
    if output.profiles and folder not in (None, path):
        _drop_links(output.profiles, folder)
    links = links_of_run(path, listed) if path.is_dir() else []
    return put(output, replace(wanted, folder=folder, name=name, hint=True), links)


def _drop_links(report: Report, folder: Path) -> None:
    """A report that is written elsewhere has links to the listings there only."""
    for backend in report.backends:
        backend.annotated = backend.annotated if (folder / backend.annotated).is_file() else ""


def listings(source: Run | KernelTable, folder: Path | None) -> list[Path]:
    """Write the listings of a run's programs into `folder`. Raises `UsageError` where it made none."""
    from perfkit.cli.parts import annotated
    from perfkit.cli.parts.output import make_folder
    from perfkit.errors import UsageError
    from perfkit.table import KernelTable

    assert folder is not None and not isinstance(source, KernelTable)
    make_folder(folder)
    written = annotated.write(source, folder)
    if not written:
        raise UsageError(annotated.NONE, "Report on it without --annotate.")
    return written


def in_run(folder: Path, as_json: Json | None = None) -> Destination:
    """Every format in the run folder itself, and JSON or text on stdout."""
    return Destination(folder, EVERY_FORMAT, as_json)


class RunReport:
    """The report of a run folder, written into it with TensorBoard's event files and the listings of its programs."""

    def __init__(
        self, folder: Path, wanted: Destination, annotate: bool = False, say: Callable[[str, str], None] | None = None
    ) -> None:
        from perfkit import readers
        from perfkit.analysis.report.analyse import analyse
        from perfkit.cli.parts import annotated
        from perfkit.render import scalars

        say = say or (lambda who, what: None)
        say("report", "analysing")
        source = readers.read_run(folder)
        self.listed = annotated.write(source, folder) if annotate else []
        self.output = output_of(source, folder)
        self.wanted, self.folder, self.annotate = wanted, folder, annotate
        self.written = write(self.output, wanted)
        say("report", "writing TensorBoard's event files")
        whole = self.output.record is self.output.profiles and self.output.profiles
        scalars.write_events(whole or analyse(source, findings=False), folder)

    def show(self) -> int:
        """Show it; return 1 where a backend is wrong or failed, or a profile unusable."""
        from perfkit.cli.parts import annotated
        from perfkit.cli.parts.shown import complain

        unusable = show(self.output, self.wanted, self.written, links_of_run(self.folder, self.listed))
        if self.annotate and not self.listed:
            complain(annotated.NONE)
        report = self.output.profiles
        return int(unusable or bool(report and any(b.status in ("wrong", "failed") for b in report.backends)))


def program_report(folder: Path, form: Destination) -> int:
    """Write the report of a captured program, and show it as `form` says; return 1 where its profile is unusable."""
    return RunReport(folder, replace(form, folder=folder, formats=EVERY_FORMAT)).show()


def joined(source: Run | KernelTable, counters: Path) -> Run | KernelTable:
    """`source` with the counters of the report at `counters`. Raises `InputError` where they cannot be joined."""
    from perfkit import readers
    from perfkit.errors import InputError
    from perfkit.readers.join import join
    from perfkit.table import KernelTable

    counted = readers.read(counters)
    if not isinstance(counted, KernelTable):
        raise InputError(f"{counters} is a run folder, and counters come from a report of ncu.", "Give the .ncu-rep.")
    if isinstance(source, KernelTable):
        return join(source, counted)
    if len(source.tables) != 1:
        raise InputError(
            f"{source.folder} holds {len(source.tables)} backends, and the counters are of one of them.",
            f"Give its table: {source.folder}/BACKEND/kernels.parquet",
        )
    source.tables = {name: join(table, counted, ceilings=False) for name, table in source.tables.items()}
    return source
