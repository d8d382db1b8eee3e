"""Renderers: a `Report` in, text out. Each is one short file; none computes anything but a scale or a colour.

`FORMATS` holds them by name. A renderer's module is imported when it is first used, so that a report in one format
loads no other's libraries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.errors import UsageError
from perfkit.run_folder import write_whole

if TYPE_CHECKING:
    from perfkit.analysis.results import Report
    from perfkit.render.views import Answers
    from perfkit.table import KernelTable


@dataclass(frozen=True)
class Format:
    """A file format of the report: its name on the command line, file ending and module in this room."""

    name: str
    extension: str
    module: str

    def render(self, report: Report, **more: object) -> str:
        """The report in this format."""
        made: str = import_module(f"perfkit.render.{self.module}").render(report, **more)
        return made


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("html", ".html", "html"),
        Format("md", ".md", "markdown"),
        Format("txt", ".txt", "terminal"),
        Format("json", ".json", "json"),
        Format("csv", ".csv", "csv"),
    )
}

# Whole kernel tables, one file a backend; not among "all", for they are large and a run holds them already.
TABLE_FORMATS = {"parquet": ".parquet", "kernels-csv": ".csv"}


def chosen(formats: str) -> tuple[str, ...]:
    """The names in a comma-separated list; "all" is every format of `FORMATS`, "none" is none.

    Raises `UsageError` for a name that is no format.
    """
    names = [name.strip().lower() for name in formats.split(",") if name.strip()]
    wanted: list[str] = []
    for name in names:
        if name not in (*FORMATS, *TABLE_FORMATS, "all", "none"):
            known = ", ".join((*FORMATS, *TABLE_FORMATS, "all", "none"))
            raise UsageError(f"{name} is not a report format.", f"Choose from {known}.")
        wanted += FORMATS if name == "all" else () if name == "none" else (name,)
    return tuple(dict.fromkeys(wanted))


def write_all(
    report: Report,
    folder: Path,
    wanted: Iterable[str] | None = None,
    tables: Mapping[str, KernelTable] | None = None,
    name: str = "report",
    answers: Answers | None = None,
) -> list[Path]:
    """Write the `wanted` formats (all of `FORMATS` when left out) as `folder`/`name`.*; the paths, in that order.

    `tables` are the whole kernel tables by backend, for the formats that export them; `answers` what the HTML
    page shows beside the report (`perfkit.render.views.answers`). Raises `RunFailed` when a file cannot be written;
    what was there before is then still whole.
    """
    from perfkit.render import csv

    written = []
    for format_name in FORMATS if wanted is None else wanted:
        if format_name in FORMATS:
            path = folder / f"{name}{FORMATS[format_name].extension}"
            more = {"answers": answers} if format_name == "html" else {}
            write_whole(path, FORMATS[format_name].render(report, **more))
            written.append(path)
            continue
        for backend, table in (tables or {}).items():
            path = folder / f"{name}.kernels.{safe_name(backend)}{TABLE_FORMATS[format_name]}"
            csv.write_table(table, path)
            written.append(path)
    return written


def safe_name(text: str) -> str:
    """`text` as part of a file name: letters, digits, dot, dash and underscore; anything else becomes a dash."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text)[:80].strip(".") or "backend"


def print_terminal(report: Report, limit: int | None = None, on_stderr: bool = False) -> None:
    """Print the report on stdout or stderr, coloured on a terminal only; `limit` rows a table, 0 for all."""
    from perfkit.render import page, terminal
    from perfkit.render.report import on_terminal, report_page

    form = on_terminal(limit)
    page.show(report_page(report, form), terminal.console(on_stderr), form.fold)
