"""A result and the files that it becomes: every command's result is an `Output`, the report's too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.errors import UsageError
from perfkit.run_folder import write_whole

if TYPE_CHECKING:
    from perfkit.analysis.results import Report
    from perfkit.render.page import Page
    from perfkit.render.report import ReportLength
    from perfkit.render.views import Answers
    from perfkit.table import KernelTable

FORMATS = ("html", "md", "txt", "json", "csv")  # each is its files' ending too
# Whole kernel tables, one file a backend; not among "all", for they are large and a run holds them already.
TABLE_FORMATS = {"parquet": ".parquet", "kernels-csv": ".csv"}
MARKDOWN_ROWS = 15


def chosen(formats: str) -> tuple[str, ...]:
    """The names in a comma-separated list; "all" means every format of `FORMATS`, "none" an empty list.

    Raises `UsageError` for an unknown name.
    """
    known = (*FORMATS, *TABLE_FORMATS, "all", "none")
    wanted: list[str] = []
    for name in (name.strip().lower() for name in formats.split(",") if name.strip()):
        if name not in known:
            raise UsageError(f"{name} is not a report format.", f"Choose from {', '.join(known)}.")
        wanted += FORMATS if name == "all" else () if name == "none" else (name,)
    return tuple(dict.fromkeys(wanted))


@dataclass(frozen=True)
class Output:
    """A record, its page in a form, the texts of its own for some formats, and the kernel tables it was made of.

    `profiles` is the report whose profiles may be unusable, `links` are a word and a place or command each.
    """

    record: object
    page: Callable[[ReportLength], Page]
    name: str = "report"
    files: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    tables: Callable[[], Mapping[str, KernelTable]] = dict
    profiles: Report | None = None
    links: Sequence[tuple[str, str]] = ()

    def text(self, format_name: str) -> str:
        """Return the text of a file of this format."""
        from perfkit.render import json, page
        from perfkit.render.report import ReportLength, on_terminal

        short = on_terminal(None)
        render: dict[str, Callable[[], str]] = {
            "html": lambda: page.render_html(self.page(ReportLength())),
            "md": lambda: page.render_markdown(self.page(ReportLength(rows=MARKDOWN_ROWS, findings=MARKDOWN_ROWS))),
            "txt": lambda: page.render_text(self.page(short), fold=short.fold),
            "json": lambda: json.render(self.record),
            **self.files,
        }
        return render[format_name]()

    def write(self, folder: Path, formats: Iterable[str], name: str = "") -> list[Path]:
        """Write the files of `formats` into `folder`, which is there; return their paths, in that order.

        Raises `RunFailed` when a file cannot be written; what was there before is then still whole.
        """
        from perfkit.render import csv

        written = []
        for format_name in formats:
            if format_name in TABLE_FORMATS:
                for backend, table in self.tables().items():
                    part = f".{safe_name(backend)}" if backend else ""
                    written.append(folder / f"{name or self.name}.kernels{part}{TABLE_FORMATS[format_name]}")
                    csv.write_table(table, written[-1])
            elif format_name != "csv" or "csv" in self.files:
                written.append(folder / f"{name or self.name}.{format_name}")
                write_whole(written[-1], self.text(format_name))
        return written


def of_page(record: object, page: Page, name: str, **files: Callable[[], str]) -> Output:
    """The output of a result whose page has one form."""
    return Output(record, lambda form: page, name, files)


def of_report(
    report: Report,
    tables: Callable[[], Mapping[str, KernelTable]] = dict,
    answers: Callable[[], Answers | None] = lambda: None,
) -> Output:
    """The output of a report; `answers` is for the HTML page (`perfkit.render.views.answers`)."""
    from perfkit.render.report import report_page

    def html() -> str:
        from perfkit.render import html

        return html.render(report, answers=answers())

    def csv() -> str:
        from perfkit.render import csv

        return csv.render(report)

    files = {"html": html, "csv": csv}
    return Output(report, partial(report_page, report), "report", files, tables, report)


def safe_name(text: str) -> str:
    """`text` as part of a file name: letters, digits, dot, dash and underscore; anything else becomes a dash."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text)[:80].strip(".") or "backend"
