"""The instructions of kernels as a page of tables, and as one HTML file with all of the code shaded by its samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

import msgspec

from perfkit import units
from perfkit.content import content_dir
from perfkit.instructions.courses import parts, said, shown
from perfkit.instructions.hot import hot_kernel
from perfkit.instructions.results import HotSpot, KernelCode
from perfkit.render import html
from perfkit.render.cells import clean
from perfkit.render.page import Page, Part, Section
from perfkit.render.pages.figures import Figure, Series
from perfkit.render.tables.code import SHOWN, hot_tables, life_table, state

TEMPLATE = "code"
_NVIDIA = "NVIDIA's own markers"
_HEADS = ("share", "state", "sectors a request", "saves at most")


def page(path: str, codes: Sequence[KernelCode], rows: int | None = SHOWN) -> Page:
    """The hottest lines and instructions of each kernel, and NVIDIA's markers under its name."""
    parts = []
    for code in codes:
        hot = hot_kernel(code, rows)
        sections = [Section(table=made) for made in hot_tables(hot, rows)]
        if life := life_table(code):
            sections.append(Section(table=life))
        remarks = [f"{spot.where}: {said}" for spot in (*hot.lines, *hot.instructions) for said in spot.nvidia]
        if remarks:
            sections.append(Section(title=_NVIDIA, text=remarks))
        parts.append(Part(title=_title(code), sections=sections or [Section(notes=hot.notes)]))
    return Page(title=f"Inside the kernels of {clean(path, 80)}", parts=parts)


def _title(code: KernelCode) -> str:
    time = f", {units.text(code.duration_ns, 'ns')}" if code.duration_ns is not None else ""
    of = f", the longest of {code.launches} launches" if code.launches > 1 else ""
    return f"{clean(code.name, 80)}{time}{of}"


def render_html(path: str, codes: Sequence[KernelCode]) -> str:
    """One HTML file that needs nothing else: each kernel's instructions, and its source files where imported."""
    kernels = [
        {"title": _title(code), "listings": list(_listings(code)), "figures": _figures(code), "said": list(said(code))}
        for code in codes
    ]
    content = {"title": f"Inside the kernels of {clean(path, 80)}", "kernels": kernels}
    return html.page(content_dir("reports") / TEMPLATE, f"{PurePath(path).name}: code", html.embedded(content))


def _figures(code: KernelCode) -> list[Figure]:
    """The use of the units over the life of a kernel, a figure each."""
    found = [course for course in shown(code) if max(course.values) > 0]
    return [
        Figure(
            title=course.name, x="µs", y="%",
            series=[Series(name=course.name, x=[at / 1e3 for at in course.at_ns], y=course.values)],
        )
        for course in found
    ]  # fmt: skip


def _listings(code: KernelCode) -> Iterator[dict[str, object]]:
    """The listings of a kernel: imported files first, the one with the hottest line before others; then SASS."""
    hot = hot_kernel(code, None)
    by_place = {spot.where: spot for spot in hot.lines}
    files = dict.fromkeys([one.file for one in code.instructions if one.file in code.sources])
    share = {
        file: sum(s.share for w, s in by_place.items() if w.startswith(f"{PurePath(file).name}:")) for file in files
    }
    for file in sorted(files, key=lambda name: -share[name]):
        name = PurePath(file).name
        rows = [
            _row(str(number), text, by_place.get(f"{name}:{number}"), hot.lines)
            for number, text in enumerate(code.sources[file].splitlines(), 1)
        ]
        yield {"title": name, "heads": [*_HEADS, "line", ""], "rows": rows}
    by_address = {spot.at: spot for spot in hot.instructions}
    rows = [
        _row(f"{one.at:#x}", _beside(one.sass, one.ptx, one.file, one.line), by_address.get(one.at), hot.instructions)
        for one in code.instructions
    ]
    yield {"title": "SASS, with PTX and lines", "heads": [*_HEADS, "at", ""], "rows": rows}


def _beside(sass: str, ptx: str, file: str, line: int) -> str:
    """An instruction with its PTX and its line in columns."""
    place = f"{PurePath(file).name}:{line}" if line else ""
    return f"{sass:<56} {ptx:<56} {place}".rstrip()


def _row(number: str, text: str, spot: HotSpot | None, hottest: Sequence[HotSpot]) -> dict[str, object]:
    if spot is None:
        return {"number": number, "text": text}
    sectors = spot.sectors_per_request
    cells = [
        f"{spot.share:.1%}",
        state(spot),
        "" if sectors is None else f"{sectors:.3g}",
        "" if spot.saving_ns is None else units.text(spot.saving_ns, "ns"),
    ]
    said = [f"{name.replace('_', ' ')} {share:.0%}" for name, share in spot.reasons[:5]]
    waits = [f"waits for {spot.waits_for}"] if spot.waits_for else []
    remarks = [f"NVIDIA: {text}" for text in spot.nvidia]
    title = "\n".join([", ".join(said), *waits, *([f"saves at most: {spot.why}"] if spot.why else []), *remarks])
    return {"number": number, "text": text, "cells": cells, "heat": spot.share / hottest[0].share, "title": title}


def record(path: str, codes: Sequence[KernelCode], rows: int | None = SHOWN) -> dict[str, object]:
    """Return the hottest lines and instructions as plain data for JSON."""
    kernels = [{**msgspec.to_builtins(hot_kernel(code, rows)), "life": _life(code)} for code in codes]
    return {"source": path, "kernels": kernels}


def _life(code: KernelCode) -> list[dict[str, object]]:
    """How busy units are over the life of a kernel, in per cent: samples, and means of its parts."""
    pairs = zip(shown(code), parts(code), strict=True) if code.duration_ns else ()
    return [{**msgspec.to_builtins(course), **msgspec.to_builtins(own)} for course, own in pairs]
