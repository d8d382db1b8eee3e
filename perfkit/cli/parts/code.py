"""The instructions of the kernels of a report of Nsight Compute, for `perfkit inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.cli.parts.output import Destination, Json, put
from perfkit.errors import InputError
from perfkit.render.output import of_page
from perfkit.run_folder import write_whole

if TYPE_CHECKING:
    from perfkit.instructions.results import KernelCode


def show(path: Path, out: Path | None, limit: int | None, answer: Json | None) -> None:
    """Show the hottest lines and instructions of each kernel; write all of the code into `out`, as HTML."""
    from perfkit.render.pages import code as rendered

    codes = read(path)
    rows = rendered.SHOWN if limit is None else limit or None
    if out:
        write_whole(out, rendered.render_html(str(path), codes))
    output = of_page(rendered.record(str(path), codes, rows), rendered.page(str(path), codes, rows), "code")
    links = [("Code", str(out))] if out and not answer else []
    put(output, Destination(as_json=answer, limit=0), links)


def read(path: Path) -> list[KernelCode]:
    """Return the code of the kernels of a report. Raises `InputError` for a file that holds none."""
    from perfkit import readers
    from perfkit.instructions.results import CODE
    from perfkit.readers.ncu import child
    from perfkit.table import KernelTable

    table = readers.read(path)
    assert isinstance(table, KernelTable)
    codes: list[KernelCode] = table.recorded.get(CODE) or []
    if codes:
        return codes
    if table.facts.get("tool") != "ncu":
        raise InputError(f"{path} is not a report of Nsight Compute and holds no instructions.", "Give a .ncu-rep.")
    if table.source.get("reader") == "ncu-csv":
        raise InputError(
            f"{path} has a row a kernel, and nothing of its instructions.",
            "Give the .ncu-rep that it was printed from.",
        )
    if child.package_folder() is None:
        raise InputError(
            f"The instructions in {path} need NVIDIA's package ncu-report.",
            "pip install 'perfkit[ncu]' (no GPU needed).",
        )
    raise InputError(
        f"{path} holds no counts of instructions.",
        "Capture it with `ncu --section SourceCounters --import-source yes`.",
    )
