"""Files of `perfkit/profile.cuh`, and of Proton's scopes inside kernels, for `perfkit inspect`."""

from __future__ import annotations

from pathlib import Path

from perfkit.cli.parts.output import Destination, Json, put
from perfkit.render.output import of_page
from perfkit.run_folder import write_whole


def is_regions(path: Path) -> bool:
    """Return whether a file holds regions of a kernel."""
    from perfkit.instructions import proton, regions

    with path.open("rb") as file:
        return regions.is_regions(file.read(len(regions.MAGIC))) or proton.is_proton(path)


def show(path: Path, out: Path | None, limit: int | None, answer: Json | None) -> None:
    """Show the regions of the longest launch; write a page (.html) or a trace for Perfetto (.json) into `out`."""
    from perfkit.instructions import proton, regions
    from perfkit.render.page import render_html
    from perfkit.render.pages import regions as rendered

    launch, records = proton.read(path) if proton.is_proton(path) else regions.read(path)
    rows = rendered.SHOWN if limit is None else limit or None
    page = rendered.page(str(path), launch, records, rows)
    if out:
        write_whole(out, rendered.trace(records).decode() if rendered.is_trace(out) else render_html(page))
    links = [("Trace" if rendered.is_trace(out) else "Page", str(out))] if out and not answer else []
    put(of_page(rendered.record(str(path), launch), page, "regions"), Destination(as_json=answer, limit=0), links)
