"""A timeline as compact binary columns: what the front end in `reports/timeline/` opens. docs/timeline-format.md.

    "PKTL"  4 bytes
    length  uint32, little endian: bytes of the header, padded with spaces so that the columns begin at a multiple of 8
    header  JSON in UTF-8: `Header`
    columns little endian, each from an offset (after the header) that is a multiple of 8

Events are sorted by track, then start; a track is one row of a lane, and its events never overlap. So a search in time
is a binary search, and neither lane nor depth needs a column.
"""

from __future__ import annotations

import base64
import gzip
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from perfkit.analysis.timeline.layout import Timeline, timelines
from perfkit.render.cells import NOTE_LIMIT, clean
from perfkit.render.timeline.events import CATEGORIES, DrawnEvents, collect
from perfkit.render.timeline.fact_columns import FactColumns

if TYPE_CHECKING:
    from perfkit.readers.kineto.recorded import HostTrace
    from perfkit.readers.run import Run
    from perfkit.table import KernelTable

MAGIC = b"PKTL"
VERSION = 1
EMBEDDED_LIMIT = 2_500_000  # bytes of base64 that timelines may add to a report
EMBEDDED_ROWS = 500_000  # more than could fit: an event takes about 10 bytes of base64
NO_HOST = "only kernels are drawn: the trace with the host's threads is gone, damaged or too large for a report"
TOO_LARGE = "with the host's threads the report would grow too large: only kernels are drawn"


class Header(msgspec.Struct, kw_only=True):
    """The header: what the columns mean.

    `lanes` {name, kind: spans, thread or stream}; `tracks` [lane, depth, first, count] by lane, then depth; `columns`
    name → [type, offset, count]; `facts` [{name, unit, words, column}], words only of texts.
    """

    version: int = VERSION
    name: str
    measured: bool
    ceilings: str
    notes: list[str]
    lanes: list[dict[str, str]]
    tracks: list[list[int]]
    names: list[str]
    categories: list[str]
    families: list[str]
    passes: list[str]
    facts: list[dict[str, Any]]
    columns: dict[str, list[Any]]


def packed(source: Run | KernelTable, name: str, hosts: Mapping[str, HostTrace] | None = None) -> dict[str, bytes]:
    """The timeline of each backend in what `perfkit.readers.read` gave, by its name; of a table alone under "profile".

    `hosts` are the host's events, from `perfkit.readers.kineto.recorded.host_traces`. Tables without a row that can be
    drawn have no timeline.
    """
    return {key: pack(made, (hosts or {}).get(key)) for key, made in _drawn(source, name, hosts or {})}


def embedded(source: Run | KernelTable, name: str, hosts: Mapping[str, HostTrace] | None = None) -> dict[str, str]:
    """The timelines of `packed` as text for an HTML file: gzip, base64; all together at most `EMBEDDED_LIMIT`.

    One that takes more than its share goes without the host's events, and says so; if that does not help it is "".
    """
    drawn = _drawn(source, name, hosts or {})
    limit = EMBEDDED_LIMIT // max(1, len(drawn))
    return {key: _fitting(made, (hosts or {}).get(key), limit) for key, made in drawn}


def _drawn(source: Run | KernelTable, name: str, hosts: Mapping[str, HostTrace]) -> list[tuple[str, Timeline]]:
    tables: dict[str, KernelTable] = getattr(source, "tables", {"profile": source})
    drawn = []
    for (key, table), made in zip(tables.items(), timelines(source, name), strict=True):
        if table.source.get("reader") == "kineto" and key not in hosts:
            made.notes.append(NO_HOST)
        if len(made):
            drawn.append((key, made))
    return drawn


def _fitting(timeline: Timeline, host: HostTrace | None, limit: int) -> str:
    if len(timeline) > EMBEDDED_ROWS:
        return ""
    for tried in dict.fromkeys((host is not None, False)):
        text = as_text(pack(timeline, host if tried else None))
        if len(text) <= limit:
            return text
        timeline.notes.append(TOO_LARGE)
    return ""


def as_text(content: bytes) -> str:
    """A timeline as an HTML file holds it: gzip, base64."""
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


def pack(timeline: Timeline, host: HostTrace | None = None) -> bytes:
    """One timeline as bytes; with `host` its threads, and the launches of its kernels."""
    facts = FactColumns()
    return written(timeline, collect(timeline, host, facts), facts)


def written(
    timeline: Timeline, events: DrawnEvents, facts: FactColumns, more: Mapping[str, np.ndarray] | None = None
) -> bytes:
    """The events of `timeline` as bytes; `more` are columns of a length of their own."""
    described, fact_columns = facts.finish()
    columns = {**events.columns(), **fact_columns, **(more or {})}
    body, places = _laid_out(columns)
    header = Header(
        name=clean(timeline.name),
        measured=timeline.measured,
        ceilings=clean(timeline.ceilings),
        notes=[clean(note, NOTE_LIMIT) for note in timeline.notes],
        lanes=[{"name": clean(name), "kind": kind} for name, kind in events.lanes],
        tracks=events.tracks,
        names=events.names.values,
        categories=list(CATEGORIES),
        families=events.families.values,
        passes=events.passes.values,
        facts=described,
        columns=places,
    )
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    return MAGIC + struct.pack("<I", len(text)) + text + body


def _laid_out(columns: Mapping[str, np.ndarray]) -> tuple[bytes, dict[str, list[Any]]]:
    parts: list[bytes] = []
    places: dict[str, list[Any]] = {}
    offset = 0
    for name, values in columns.items():
        raw = values.astype(values.dtype.newbyteorder("<")).tobytes()
        places[name] = [values.dtype.name, offset, len(values)]
        raw += b"\0" * (-len(raw) % 8)
        parts.append(raw)
        offset += len(raw)
    return b"".join(parts), places
