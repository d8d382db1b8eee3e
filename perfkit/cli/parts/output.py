"""Write a result, show it, and say where it is: what every command does with what it found."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit.render.output import Output

NO_FILES = "No files were written: --out FOLDER writes the report as HTML and more."


@dataclass(frozen=True)
class Json:
    """JSON on stdout instead of text: all of a result, the parts that `select` names, or a `brief` answer.

    The brief answer can be text, too.
    """

    select: str = ""
    brief: bool = False
    as_text: bool = False

    def text(self, output: Output) -> str:
        """Return what is printed of `output`. Raises `UsageError` for an unknown path."""
        from perfkit.render import brief, json, select

        if self.brief:
            return brief.render(output, self.as_text)
        return select.render(json.render(output.record), self.select) if self.select else json.render(output.record)


def json_of(as_json: bool, brief: bool | None = None, select: str = "") -> Json | None:
    """Return what `--json`, `--brief` and `--select` ask for; None for text. Raises `UsageError` for two of them.

    `brief` is False for the answer as text.
    """
    from perfkit.errors import UsageError

    if brief is not None and (as_json or select):
        raise UsageError("--brief is JSON of its own.", "Leave out --json and --select.")
    return Json(select, brief is not None, brief is False) if as_json or brief is not None or select else None


@dataclass(frozen=True)
class Destination:
    """The destination of a result: files of these formats in a folder under a name, and JSON or text on a stream.

    `hint` says how to get files where none were written.
    """

    folder: Path | None = None
    formats: Sequence[str] = ("html", "md", "json")
    as_json: Json | None = None
    limit: int | None = None
    name: str = ""
    on_stderr: bool = False
    hint: bool = False


def put(output: Output, wanted: Destination, links: Sequence[tuple[str, str]] = ()) -> bool:
    """Write the files of `output`, show it, and say where it lies, `links` (a word and a place or command) included.

    Returns whether a profile is unusable, which is said on stderr. Raises `UsageError` where the folder cannot be made,
    `RunFailed` where a file cannot be written.
    """
    return show(output, wanted, write(output, wanted), links)


def write(output: Output, wanted: Destination) -> list[Path]:
    """Write the files of `output`; return their paths."""
    if wanted.folder is None:
        return []
    make_folder(wanted.folder)
    return output.write(wanted.folder, wanted.formats, wanted.name)


def show(output: Output, wanted: Destination, written: Sequence[Path], links: Sequence[tuple[str, str]] = ()) -> bool:
    """Show `output`, and say where its files lie; return whether a profile is unusable."""
    from perfkit.render import page, terminal
    from perfkit.render.report import on_terminal

    if wanted.as_json:
        (sys.stderr if wanted.on_stderr else sys.stdout).write(wanted.as_json.text(output))
    else:
        form, console = on_terminal(wanted.limit), terminal.console(wanted.on_stderr)
        page.show(output.page(form), console, form.fold)
        first = next((p for p in written if p.suffix == ".html"), next(iter(written), None))
        places = [("Report", str(first))] if first else []
        for word, place in [*places, *output.links, *links]:
            console.print(f"{f'{word}:':<12} {place}", soft_wrap=True)
        if wanted.hint and not (written or links):
            console.print(NO_FILES, soft_wrap=True)
    return complain_of_profiles(output)


def links_of_run(run: Path, listed: Sequence[Path] = ()) -> list[tuple[str, str]]:
    """How to look at a run folder, and at the listings of its programs."""
    from perfkit.run_folder import read_manifest

    several = [run / one.name for one in read_manifest(run).backends if sum(bool(r.trace) for r in one.ranks) > 1]
    return [
        *(("Annotated", f"{path} and .html") for path in listed if path.suffix == ".txt"),
        ("Run folder", str(run)),
        ("TensorBoard", f"perfkit tensorboard {run}"),
        *(("Ranks", f"perfkit report {traces}") for traces in several),
    ]


def complain_of_profiles(output: Output) -> bool:
    """Say on stderr which profiles are unusable, and why; return whether any is."""
    from perfkit.analysis.report import verdict
    from perfkit.cli.parts.shown import complain

    unusable = [backend for backend in output.profiles.backends if backend.unusable] if output.profiles else []
    for backend in unusable:
        complain(verdict.unusable(backend))
    return bool(unusable)


def make_folder(folder: Path) -> None:
    """Make `folder` for a report unless it is there; raises `UsageError` when it cannot be one."""
    from perfkit.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}.", "Choose another --out.") from error
