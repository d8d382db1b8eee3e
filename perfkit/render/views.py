"""Data for the views of the TensorBoard plugin and of the HTML report, as JSON: a report, a difference, allocations.

The plugin answers its page's questions with them, one at a time; the HTML report holds the answers to all that its page
can ask (`Answers`). The page's modules are the same. Texts of a profile can be of any length: the page shows a few
hundred characters of them, and gets no more than `TEXT_LIMIT`.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perfkit.analysis.difference import difference
from perfkit.analysis.results import Report
from perfkit.render.trace import NAME_LIMIT as TEXT_LIMIT

MOST_CHANGES = 500  # kernels of a difference inside a report: with many backends there are many differences

if TYPE_CHECKING:
    from perfkit.readers.run import Run
    from perfkit.table import KernelTable


def report_of(source: Run | KernelTable, path: Path, name: str) -> Report:
    """The report of what `perfkit.readers.read` gave for `path`; it says that it was read from `name`."""
    from perfkit.analysis.report.analyse import analyse_any  # not above: the HTML page needs only the rest

    made = analyse_any(source, path)
    made.source = name
    # As in the HTML report: the page sorts for itself.
    made.backends = [msgspec.structs.replace(b, headroom=[]) for b in made.backends]
    return made


def encoded(value: Any) -> bytes:
    """JSON in which no text is longer than `TEXT_LIMIT` or no Unicode; what is unknown or no number is null."""
    return msgspec.json.encode(_short(msgspec.to_builtins(value)))


class Answers(msgspec.Struct, kw_only=True):
    """Data of an HTML report next to the report itself: each text is gzip in base64.

    `timelines` by backend, as `perfkit.render.timeline.embedded` makes them; `memory` is the JSON of the allocations by
    backend, "" where none could be read; `differences` the JSON of a `Difference` by first and second backend; `job` of
    one rank of a job the page of all ranks, and the heading (`detail`) of what is about the one.
    """

    timelines: Mapping[str, str] = {}
    memory: str = ""
    differences: dict[str, dict[str, str]] = {}
    job: dict[str, Any] | None = None


def answers(report: Report, timelines: Mapping[str, str], memory: list[Any]) -> Answers:
    """All that a page of `report` can ask; `memory` as `perfkit.readers.kineto.recorded.memory_of` gives it."""
    made = Answers(timelines=timelines, memory=_packed(encoded(memory)) if memory else "")
    captured = [b.name for b in report.backends if b.kernels]
    for first, second in permutations(captured, 2):
        changes = difference(report, report, (first, second))
        if len(changes.kernels) > MOST_CHANGES:
            changes.notes.append(f"of {len(changes.kernels)} kernels the {MOST_CHANGES} that differ most are shown")
            changes.kernels = changes.kernels[:MOST_CHANGES]
        made.differences.setdefault(first, {})[second] = _packed(encoded(changes))
    return made


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def diff(first: Report, second: Report, backends: tuple[str, str]) -> bytes:
    """The `perfkit.analysis.difference.Difference` as JSON. Raises `KeyError` for a backend that is missing."""
    return encoded(difference(first, second, backends))


def _short(value: Any) -> Any:
    if isinstance(value, str):
        short = value if len(value) <= TEXT_LIMIT else f"{value[:TEXT_LIMIT]}…"
        return short if short.isascii() else short.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_short(k): _short(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(v) for v in value]
    return value
