"""What commands share: progress on stderr, a report on stdout, and where its files lie."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit.analysis.results import Report
    from perfkit.readers.run import Run
    from perfkit.render.views import Answers
    from perfkit.table import KernelTable

FURTHER = " · "  # in what is being done, between the stage and how far it is: "timing · round 2 of 8"


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str, str], None]]:
    """A function `(who, what)` that shows what is being done: a live line on a terminal, elsewhere a line a stage.

    `what` is a stage, or a stage, `FURTHER` and how far it is.
    """
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    started = time.monotonic()
    if console.is_terminal:
        with console.status("starting") as status:
            yield lambda who, what: status.update(f"[bold]{who}[/bold] {what}  [dim]{time.monotonic() - started:.0f} s")
        return
    begun: set[str] = set()

    def line(who: str, what: str) -> None:
        stage = f"{who}: {what.partition(FURTHER)[0]}"
        if stage not in begun:
            begun.add(stage)
            print(f"[{time.monotonic() - started:5.0f} s] {stage}", file=sys.stderr, flush=True)

    yield line


def need_torch(command: str) -> None:
    """Raise `Unavailable` where PyTorch is not installed, which `command` runs."""
    from importlib.util import find_spec

    from perfkit.errors import Unavailable

    if find_spec("torch") is None:
        raise Unavailable(
            f"PyTorch is not installed, and `{command}` runs it.", "Install it: pip install 'perfkit[run]'."
        )


def write_reports(report: Report, source: Run | KernelTable, folder: Path) -> list[Path]:
    """Write the report of `source` in every file format into `folder`; the paths written."""
    from perfkit import render

    return render.write_all(report, folder, answers=answers(report, source))


def answers(report: Report, source: Run | KernelTable) -> Answers:
    """What the HTML page of `report` embeds beside it: timelines, allocations and differences of `source`."""
    from perfkit.readers.kineto.recorded import LARGEST, host_traces, memory_of
    from perfkit.render import timeline, views
    from perfkit.table import KernelTable

    name = report.backends[0].name if report.backends else ""
    made = timeline.embedded(source, name, host_traces(source, largest=LARGEST))
    timelines = made if not isinstance(source, KernelTable) else dict(zip([name], made.values(), strict=False))
    return views.answers(report, timelines, memory_of(source, name))


def show(report: Report, as_json: bool, limit: int | None = None) -> None:
    """Print a report on stdout: for people, or as JSON."""
    from perfkit import render

    if as_json:
        sys.stdout.write(render.FORMATS["json"].render(report))
    else:
        render.print_terminal(report, limit)


def make_folder(folder: Path) -> None:
    """Make `folder` for a report unless it is there; raises `UsageError` when it cannot be one."""
    from perfkit.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}.", "Choose another --out.") from error


def say_where(written: list[Path], run: Path | None, listed: Sequence[Path] = (), on_stderr: bool = False) -> None:
    """Print where the report and its run lie, and how to look at them; how to get files when none were written."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=False, stderr=on_stderr)
    page = next((p for p in written if p.suffix == ".html"), next(iter(written), None))
    if page:
        console.print(f"Report:      {page}")
    for listing in (path for path in listed if path.suffix == ".txt"):
        console.print(f"Annotated:   {listing} and .html")
    if run:
        console.print(f"Run folder:  {run}")
        console.print(f"TensorBoard: perfkit tensorboard {run}")
        for traces in _of_ranks(run):
            console.print(f"Ranks:       perfkit report {traces}")
    elif not written:
        console.print("No files were written: --out FOLDER writes the report as HTML and more.")


def _of_ranks(run: Path) -> list[str]:
    """The folders of a run that hold the traces of several ranks."""
    from perfkit.run_folder import read_manifest

    return [str(run / one.name) for one in read_manifest(run).backends if sum(bool(r.trace) for r in one.ranks) > 1]


def reported(
    folder: Path, annotate: bool, progress: Callable[[str, str], None]
) -> tuple[Report, list[Path], list[Path]]:
    """Write the reports of a run folder, and its listings where asked for: the report, and the paths of both."""
    from perfkit import readers
    from perfkit.analysis.report.analyse import analyse
    from perfkit.cli.parts import annotated
    from perfkit.render import scalars

    progress("report", "analysing")
    source = readers.read_run(folder)
    listed = annotated.write(source, folder) if annotate else []
    result = analyse(source)
    written = write_reports(result, source, folder)
    progress("report", "writing TensorBoard's event files")
    scalars.write_events(result, folder)
    return result, written, listed


def show_run(folder: Path, made: tuple[Report, list[Path], list[Path]], as_json: bool, annotate: bool) -> int:
    """Show a report; 1 where a backend is wrong or failed, or a profile unusable."""
    from perfkit.cli.parts import annotated

    result, written, listed = made
    show(result, as_json)
    if not as_json:
        say_where(written, folder, listed)
    if annotate and not listed:
        complain(annotated.NONE)
    unusable = complain_of_profiles(result)
    return int(unusable or any(b.status in ("wrong", "failed") for b in result.backends))


def complain_of_profiles(report: Report) -> bool:
    """Say on stderr which profiles are unusable, and why; whether any is."""
    from perfkit.analysis.report import verdict

    found = [backend for backend in report.backends if backend.unusable]
    for backend in found:
        complain(verdict.unusable(backend))
    return bool(found)


def complain(sentence: str) -> None:
    """Print what went wrong on stderr, as errors are printed, where the command goes on."""
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, highlight=False, soft_wrap=True).print(Text.assemble(("perfkit: ", "bold red"), sentence))
