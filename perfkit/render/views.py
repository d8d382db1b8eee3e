"""What the views of the TensorBoard plugin show, as JSON: a report, the difference of two, allocations.

Texts of a profile can be of any length: the page shows a few hundred characters of them, and gets no more than
`TEXT_LIMIT`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perfkit.analysis.difference import difference
from perfkit.analysis.report import analyse_any
from perfkit.analysis.results import Report
from perfkit.render.trace import NAME_LIMIT as TEXT_LIMIT

if TYPE_CHECKING:
    from perfkit.readers.run import Run
    from perfkit.table import KernelTable


def report_of(source: Run | KernelTable, path: Path, name: str) -> Report:
    """The report of what `perfkit.readers.read` gave for `path`; it says that it was read from `name`."""
    made = analyse_any(source, path)
    made.source = name
    # As in the HTML report: the page sorts for itself.
    made.backends = [msgspec.structs.replace(b, headroom=[]) for b in made.backends]
    return made


def encoded(value: Any) -> bytes:
    """JSON in which no text is longer than `TEXT_LIMIT` or no Unicode; what is unknown or no number is null."""
    return msgspec.json.encode(_short(msgspec.to_builtins(value)))


def diff(first: Report, second: Report, backends: tuple[str, str]) -> bytes:
    """The `perfkit.analysis.difference.Difference` as JSON. Raises `KeyError` for a backend that is not there."""
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
