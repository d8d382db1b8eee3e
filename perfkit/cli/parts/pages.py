"""Results that are shown as a page, or printed as JSON, and written as files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from perfkit.cli.parts.shown import make_folder
from perfkit.render import json, page
from perfkit.run_folder import write_whole

NO_FILES = "No files were written: --out FOLDER writes the report as HTML and more."


def show(made: page.Page, record: object, as_json: bool, written: Sequence[Path] = ()) -> None:
    """Print `record` as JSON, or its page and where the HTML among `written` lies."""
    if as_json:
        sys.stdout.write(json.render(record))
        return
    page.show(made)
    for path in written:
        if path.suffix == ".html":
            print(f"Report: {path}")


def write(
    made: page.Page,
    record: object,
    folder: Path,
    name: str,
    formats: Iterable[str] = ("html", "md", "json"),
    **own: Callable[[], str],
) -> list[Path]:
    """Write `folder`/`name`.* in those of `formats` that a page has, and in its `own`; the paths written.

    Raises `UsageError` where the folder cannot be made, `RunFailed` where a file cannot be written.
    """
    make_folder(folder)
    render: dict[str, Callable[[], str]] = {
        "html": lambda: page.render_html(made),
        "md": lambda: page.render_markdown(made),
        "txt": lambda: page.render_text(made),
        "json": lambda: json.render(record),
    }
    render |= own
    paths = {folder / f"{name}.{ending}": render[ending] for ending in formats if ending in render}
    for path, text in paths.items():
        write_whole(path, text())
    return list(paths)
