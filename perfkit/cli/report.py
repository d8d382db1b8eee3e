"""`perfkit report`: make a report of a run, or of a profile captured anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from perfkit.analysis.results import Report
    from perfkit.cli.parts.jobs import Job
    from perfkit.readers.run import Run
    from perfkit.table import KernelTable


def report(
    paths: Annotated[list[Path], typer.Argument(help="Run folders or profiles, reported one after another.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report's files; default: the run folder itself.")
    ] = None,
    formats: Annotated[
        str,
        typer.Option("--format", help="File formats: html, md, txt, json, csv, parquet, kernels-csv; all; none."),
    ] = "all",
    counters: Annotated[
        Path | None,
        typer.Option(help="A report of ncu for the same workload, whose counters are joined to the kernels."),
    ] = None,
    annotate: Annotated[
        bool, typer.Option("--annotate", help="For a run: list generated programs with the cost of each line.")
    ] = False,
    limit: Annotated[int | None, typer.Option(help="Rows of each table in the terminal; 0 for all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON instead of text.")] = False,
    style: Annotated[
        str, typer.Option(help="perfkit, or llmc: the summary that llm.c's profile script prints for profile_gpt2cu.")
    ] = "perfkit",
    layers: Annotated[
        int | None, typer.Option(help="llmc: number of layers that the profiled one represents (12).")
    ] = None,
    pass_names: Annotated[str, typer.Option(help="llmc: other names of passes, such as fwd=forward,cls=head.")] = "",
) -> int:
    """Report on a run folder or a profile: where the time goes, the distance to the roof, and possible savings.

    Needs no torch and no GPU. Accepts run folders, kernel tables (parquet), torch.profiler traces (.json, .json.gz),
    Nsight Compute reports (.ncu-rep, CSV), Nsight Systems captures (.sqlite; .nsys-rep if nsys is installed),
    training logs of llm.c (main.log), whose losses and evaluations it plots, and memory snapshots of PyTorch (.pickle),
    of which it says who holds the memory.
    """
    from perfkit import readers, render
    from perfkit.cli.parts import shown, styles

    wanted = render.chosen(formats)
    _check_annotate(annotate, paths, style)
    write = styles.choose(style, layers, pass_names, as_json)
    _check_counters(counters, paths, style)
    if write:
        styles.report(paths, out, write, ".json" if as_json else ".txt")
        return 0
    from perfkit.cli.parts import jobs, memory, ranks, training

    paths = training.report_logs(paths, out, wanted, as_json, counters is not None)
    paths = memory.report_snapshots(paths, out, wanted, as_json, counters is not None)
    given = len(paths)
    paths = ranks.report_ranks(paths, out, wanted, as_json)
    code = 0
    for number, path in enumerate(paths):
        if (number or given != len(paths)) and not as_json:
            print()  # each profile is a section of its own: what different profilers timed is never summed
        source = readers.read(path, whole=bool(out) and "html" in wanted)
        from perfkit.analysis.report.analyse import (
            analyse_any,  # not before: what reads a report starts first, beside it
        )

        if counters:
            source = _joined(source, counters)
        folder = out or (path if path.is_dir() else None)
        name = "report" if len(paths) == 1 or folder == path else f"report-{render.safe_name(path.name)}"
        if not (annotate or counters) and (job := jobs.of(source)):
            code |= _job(job, folder, wanted, name, as_json, limit)
            continue
        listed = _annotated(source, folder) if annotate else []
        result = analyse_any(source, path)
        _drop_links(result, path, folder)
        written: list[Path] = []
        if folder:
            shown.make_folder(folder)
            answers = shown.answers(result, source) if "html" in wanted else None
            written = render.write_all(result, folder, wanted, readers.tables_of(source), name, answers)
        shown.show(result, as_json, limit)
        if not as_json:
            shown.say_where(written, path if path.is_dir() else None, listed)
        code |= shown.complain_of_profiles(result)
    return code


def _job(job: Job, folder: Path | None, wanted: tuple[str, ...], name: str, as_json: bool, limit: int | None) -> int:
    """Report on the ranks of a captured job; 1 where the profile of the one in detail is unusable."""
    from perfkit.cli.parts import jobs, shown

    written = jobs.write(job, folder, wanted, name) if folder else []
    jobs.show(job, as_json, limit)
    if not as_json:
        shown.say_where(written, job.run.folder)
    return shown.complain_of_profiles(job.detail)


def _check_annotate(annotate: bool, paths: list[Path], style: str) -> None:
    """Raise `UsageError` where --annotate cannot be meant."""
    from perfkit.errors import UsageError
    from perfkit.run_folder import is_run_folder

    if annotate and (style != "perfkit" or not all(map(is_run_folder, paths))):
        raise UsageError("--annotate lists the programs of a run.", "Give the folder that `perfkit run` printed.")


def _annotated(source: Run | KernelTable, folder: Path | None) -> list[Path]:
    """Write the listings of a run's programs into `folder`."""
    from perfkit.cli.parts import annotated, shown
    from perfkit.errors import UsageError
    from perfkit.table import KernelTable

    assert folder is not None
    assert not isinstance(source, KernelTable)
    shown.make_folder(folder)
    written = annotated.write(source, folder)
    if not written:
        raise UsageError(annotated.NONE, "Report on it without --annotate.")
    return written


def _drop_links(result: Report, path: Path, folder: Path | None) -> None:
    """A report that is written elsewhere has links to listings that lie beside it only."""
    if folder is None or folder == path:
        return
    for backend in result.backends:
        backend.annotated = backend.annotated if (folder / backend.annotated).is_file() else ""


def _check_counters(counters: Path | None, paths: list[Path], style: str) -> None:
    """Raise `UsageError` where --counters cannot be meant."""
    from perfkit.errors import UsageError

    if counters and len(paths) > 1:
        raise UsageError("--counters belongs to one profile, and several are given.", "Report on them one by one.")
    if counters and style == "llmc":
        raise UsageError("--style llmc reports on ncu's own times.", "Give it the report of ncu alone.")


def _joined(source: Run | KernelTable, counters: Path) -> Run | KernelTable:
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
