"""Other styles of `perfkit report`: what another tool prints, from the same kernel tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.cli.parts.output import make_folder
from perfkit.errors import InputError, UsageError
from perfkit.render.output import safe_name
from perfkit.run_folder import write_whole

if TYPE_CHECKING:
    from perfkit.table import KernelTable

    Write = Callable[[str, KernelTable], str]

STYLES = ("perfkit", "llmc")


def choose(style: str, layers: int | None, pass_names: str, as_json: bool) -> Write:
    """Return the function that writes a table (given its title) in a `style` other than perfkit's.

    Raises `UsageError` for an unknown style, or for options that belong to another.
    """
    if style not in STYLES:
        raise UsageError(f"{style} is not a style of the report.", f"Choose from {', '.join(STYLES)}.")
    if style == "llmc":
        return _llmc(layers, pass_names, as_json)
    raise UsageError("--layers and --pass-names belong to the llm.c style.", "Add --style llmc.")


def report(paths: Iterable[Path], out: Path | None, write: Write, extension: str) -> None:
    """Print every kernel table in `paths`; where a folder `out` is given, write it there too, ending in `extension`."""
    from perfkit import readers
    from perfkit.render.cells import clean

    texts: dict[str, str] = {}
    for path in paths:
        tables = readers.tables_of(readers.read(path))
        if not tables:
            raise InputError(f"{path} holds no kernel table.", "Run the workload again under a profiler.")
        for name, table in tables.items():
            title = str(path) if len(tables) == 1 else f"{path}, {name}"
            texts[title] = write(clean(title), table)
    if out:
        make_folder(out)
        for title, text in texts.items():
            name = "report.llmc" if len(texts) == 1 else f"report-{safe_name(title)}.llmc"
            write_whole(out / f"{name}{extension}", text)
    sys.stdout.write("\n".join(texts.values()))


def _llmc(layers: int | None, pass_names: str, as_json: bool) -> Write:
    from perfkit.analysis import llmc_style

    settings = llmc_style.LlmcStyle(llmc_style.LAYERS if layers is None else layers, llmc_style.named(pass_names))

    def write(title: str, table: KernelTable) -> str:
        summary = llmc_style.summarize(table, settings)
        if as_json:
            from perfkit.render import json

            return json.render(summary)
        from perfkit.render.pages import llmc

        return f"{title}\n\n{llmc.render(summary, settings)}"

    return write
