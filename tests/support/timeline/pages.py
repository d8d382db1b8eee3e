"""Pages with one timeline, and timelines of tables made here."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.readers import read
from perfkit.readers.kineto.recorded import host_traces
from perfkit.render import html
from perfkit.render.timeline import embedded, packed
from perfkit.render.views import Answers

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kineto"
TEMPLATE = Path(__file__).parent / "page"


def opened(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and columns of a timeline, read by what docs/timeline-format.md says alone."""
    assert content[:4] == b"PKTL"
    (length,) = struct.unpack("<I", content[4:8])
    header = json.loads(content[8 : 8 + length])
    columns = {
        name: np.frombuffer(content, np.dtype(kind).newbyteorder("<"), count, 8 + length + offset)
        for name, (kind, offset, count) in header["columns"].items()
    }
    return header, columns


def of_trace(path: Path) -> bytes:
    """The timeline of a trace with its host's part."""
    source = read(path)
    return packed(source, path.name, host_traces(source))["profile"]


def page_of_trace(path: Path, out: Path) -> Path:
    """A page with the timeline of a trace."""
    source = read(path)
    return write_page(embedded(source, path.name, host_traces(source)), out)


def write_page(timelines: dict[str, str], out: Path) -> Path:
    """The page of tests/support/timeline/page with these timelines."""
    out.write_text(html.page(TEMPLATE, "timeline", html.embedded(None), Answers(timelines=timelines)), encoding="utf-8")
    return out


def trace_of(events: list[dict[str, Any]], path: Path) -> Path:
    """A compressed trace of these events."""
    path.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode(), 1))
    return path
