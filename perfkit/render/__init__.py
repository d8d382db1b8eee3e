"""Renderers: a `Report` in, text out. Each is one short file; none computes anything but a scale or a colour.

`FORMATS` maps a format's name to its file ending and its function `Report → str | bytes`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.run_folder import write_whole

if TYPE_CHECKING:
    from perfkit.analysis.results import Report

Renderer = Callable[["Report"], "str | bytes"]


def _renderer(module: str) -> Renderer:
    """The renderer in `module`, imported when it is first used: a report in one format loads no other's libraries."""

    def call(report: Report) -> str | bytes:
        made: str | bytes = import_module(f"perfkit.render.{module}").render(report)
        return made

    return call


FORMATS: dict[str, tuple[str, Renderer]] = {
    "terminal": (".txt", _renderer("terminal")),
    "markdown": (".md", _renderer("markdown")),
    "json": (".json", _renderer("json")),
    "csv": (".csv", _renderer("csv")),
    "html": (".html", _renderer("html")),
}


def write_all(report: Report, folder: Path, name: str = "report") -> list[Path]:
    """Write every format as `folder`/`name`.* and return the paths, in the order of `FORMATS`.

    Raises `RunFailed` when a file cannot be written; what was there before is then still whole.
    """
    written = []
    for extension, render in FORMATS.values():
        path = folder / f"{name}{extension}"
        write_whole(path, render(report))
        written.append(path)
    return written
