"""`perfkit report`: make a report of a run, or of a profile captured anywhere."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.parts import options
from perfkit.cli.parts.output import Destination, json_of


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
    costs: options.Costs = None,
    annotate: Annotated[
        bool, typer.Option("--annotate", help="For a run: list generated programs with the cost of each line.")
    ] = False,
    limit: options.Limit = None,
    as_json: options.AsJson = False,
    brief: options.Brief = None,
    select: Annotated[
        str, typer.Option(help="Parts of the report as JSON, such as kernels[:10],findings.gpu-idle,modules.h.*.")
    ] = "",
    style: Annotated[
        str, typer.Option(help="perfkit, or llmc: the summary that llm.c's profile script prints for profile_gpt2cu.")
    ] = "perfkit",
    layers: Annotated[
        int | None, typer.Option(help="llmc: number of layers that the profiled one represents (12).")
    ] = None,
    pass_names: Annotated[str, typer.Option(help="llmc: other names of passes, such as fwd=forward,cls=head.")] = "",
) -> int:
    """Report on a run folder or a profile: where the time goes, the distance to the roof, and possible savings.

    Needs no torch and no GPU. Of another folder it says what each file is, and reads together what belongs together.
    Accepts run folders, kernel tables (parquet), torch.profiler traces (.json, .json.gz),
    Nsight Compute reports (.ncu-rep, CSV), Nsight Systems captures (.sqlite; .nsys-rep if nsys is installed),
    training logs of llm.c (main.log), whose losses and evaluations it plots, and memory snapshots of PyTorch (.pickle),
    of which it says who holds the memory.
    """
    from perfkit.render.output import chosen

    answer = json_of(as_json, brief, select)
    wanted = Destination(out, chosen(formats), answer, limit)
    _check_annotate(annotate, paths, style)
    _check_counters(counters, paths, style)
    if costs:
        _check_costs(costs, paths)
        options.use_costs(costs)
    if style != "perfkit" or layers is not None or pass_names:
        from perfkit.cli.parts import styles

        styles.report(paths, out, styles.choose(style, layers, pass_names, as_json), ".json" if as_json else ".txt")
        return 0
    with _unpacked(paths) as files:
        files, joined = _opened(files)
        return int(_all(files, wanted, annotate, counters, joined))


def _unpacked(paths: list[Path]) -> AbstractContextManager[list[Path]]:
    """The paths with what is in archives in their place, for as long as it is read."""
    from perfkit.readers.sniff import begins_as_archive

    if not any(map(begins_as_archive, paths)):
        return nullcontext(paths)
    from perfkit.readers import archives

    return archives.unpacked(paths)


def _opened(paths: list[Path]) -> tuple[list[Path], dict[Path, Path]]:
    """The paths with what is in folders other than runs in their place, which is said on stderr; and for a trace the
    report of ncu in its folder."""
    from perfkit.run_folder import is_run_folder

    files, joined = list[Path](), dict[Path, Path]()
    for path in paths:
        if not path.is_dir() or is_run_folder(path):
            files.append(path)
            continue
        from perfkit.readers import folder

        found = folder.contents_of(path)
        print("\n".join([f"{path}:", *(f"  {line}" for line in found.lines())]), file=sys.stderr)
        files += found.read
        joined |= found.counters
    return files, joined


def _of_one(path: Path, wanted: Destination, alone: bool, annotate: bool, counters: Path | None, given: bool) -> bool:
    """Report on one run or profile; a report of ncu that was found and not given is its own where it does not fit."""
    from perfkit.cli.parts import reported, shown
    from perfkit.errors import InputError

    try:
        return reported.of_path(path, wanted, alone=alone, annotate=annotate, counters=counters)
    except InputError as error:
        if given or counters is None:
            raise
        shown.complain(str(error))
    unusable = reported.of_path(path, wanted, alone=False, annotate=annotate)
    return reported.of_path(counters, wanted, alone=False, annotate=annotate) or unusable


def _all(
    paths: list[Path], wanted: Destination, annotate: bool, counters: Path | None, joined: dict[Path, Path]
) -> bool:
    """Report on all of them, those of a kind together; whether a profile is unusable. `joined` are reports of ncu."""
    wanted = replace(wanted, hint=True)
    paths = _without_kernels(paths, wanted, counters is not None)
    given = len(paths)
    if given > 1:
        from perfkit.cli.parts import ranks

        paths = ranks.report_ranks(paths, wanted)
    unusable = False
    for number, path in enumerate(paths):
        if (number or given != len(paths)) and not wanted.as_json:
            print()  # each profile is a section of its own: what different profilers timed is never summed
        mine = counters or joined.get(path)
        unusable |= _of_one(path, wanted, len(paths) == 1, annotate, mine, given=counters is not None)
    return unusable


def _without_kernels(paths: list[Path], wanted: Destination, counters: bool) -> list[Path]:
    """Report on the files among `paths` that hold something else than kernels; the other paths, in order."""
    from perfkit.errors import UsageError
    from perfkit.readers.formats import KERNELS, MEMORY, TRAINING, content_of

    by_kind: dict[str, list[Path]] = {KERNELS: [], TRAINING: [], MEMORY: []}
    for path in paths:
        by_kind[content_of(path)].append(path)
    if counters and (others := by_kind[TRAINING] + by_kind[MEMORY]):
        what = "training log" if others[0] in by_kind[TRAINING] else "memory snapshot"
        raise UsageError(f"{others[0]} is a {what}, and --counters belongs to a profile.", "Leave it out.")
    if logs := by_kind[TRAINING]:
        from perfkit.cli.parts import training

        training.report(logs, wanted)
    if snapshots := by_kind[MEMORY]:
        from perfkit.cli.parts import memory

        memory.report(snapshots, wanted)
    return by_kind[KERNELS]


def _check_annotate(annotate: bool, paths: list[Path], style: str) -> None:
    """Raise `UsageError` where --annotate cannot be meant."""
    from perfkit.errors import UsageError
    from perfkit.run_folder import is_run_folder

    if annotate and (style != "perfkit" or not all(map(is_run_folder, paths))):
        raise UsageError("--annotate lists the programs of a run.", "Give the folder that `perfkit run` printed.")


def _check_costs(costs: Path, paths: list[Path]) -> None:
    """Raise `UsageError` where --costs cannot be meant: the work in a run was counted when it was recorded."""
    from perfkit.errors import UsageError
    from perfkit.run_folder import is_run_folder

    runs = [path for path in paths if is_run_folder(path)]
    if runs:
        raise UsageError(
            f"--costs is for traces, and the work in {runs[0]} was counted when it was recorded.",
            f"Give its trace ({runs[0]}/BACKEND/trace.json.gz), or record again with --costs.",
        )


def _check_counters(counters: Path | None, paths: list[Path], style: str) -> None:
    """Raise `UsageError` where --counters cannot be meant."""
    from perfkit.errors import UsageError

    if counters and len(paths) > 1:
        raise UsageError("--counters belongs to one profile, and several are given.", "Report on them one by one.")
    if counters and style == "llmc":
        raise UsageError("--style llmc reports on ncu's own times.", "Give it the report of ncu alone.")
