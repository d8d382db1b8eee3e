"""Results in at most 4 KB of JSON, for code agents and CI (docs/agents.md).

    {"schema": 1, "of": "run", "measured": {...}, "verdict": [...], "backends": [...], "findings": [...], ...}

Every number is one of the full result, in its base unit (ns, bytes, FLOP, shares from 0 to 1). Where the answer would
be longer, texts are cropped, then rows of the end are left out, and `left_out` says how many.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from perfkit.analysis.results import Report
from perfkit.render.cells import clean_all
from perfkit.render.output import Output

SCHEMA = 1
LARGEST = 4096  # bytes of an answer
_TEXTS = (400, 320, 240, 200, 170, 140, 120, 100, 80, 60)  # characters of a sentence, in turn until the answer fits
_ROWS = (40, 20, 10, 5, 3, 2, 1)  # then this number of rows


def render(output: Output, as_text: bool = False) -> str:
    """Return the answer about a result in at most `LARGEST` bytes: one line of JSON, or text of the same content."""
    text = ""
    for length, rows in [*((length, _ROWS[0]) for length in _TEXTS), *((_TEXTS[-1], rows) for rows in _ROWS)]:
        answer = clean_all({"schema": SCHEMA, **_answer(output, length, rows)})
        text = "\n".join(_lines(answer)) if as_text else _json(answer)
        if len(text.encode()) < LARGEST:
            break
    return text + "\n"


def _json(answer: Any) -> str:
    return json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _lines(value: dict[str, Any], indent: str = "") -> Iterator[str]:
    """The answer as lines of names and values; entries of a list begin with a dash."""
    for name, one in value.items():
        if isinstance(one, dict):
            yield f"{indent}{name}:"
            yield from _lines(one, f"{indent}  ")
        elif isinstance(one, list) and one and isinstance(one[0], dict | list | str) and name != "columns":
            yield f"{indent}{name}:"
            for entry in one:
                lines = list(_lines(entry)) if isinstance(entry, dict) else [_plain(entry)]
                yield from (f"{indent}{'  ' if at else '- '}{line}" for at, line in enumerate(lines))
        else:
            yield f"{indent}{name}: {_plain(one)}"


def _plain(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    return (" | " if value and isinstance(value[0], str) else ", ").join(map(str, value))


def _answer(output: Output, length: int, rows: int) -> dict[str, Any]:
    """The answer with sentences of `length` characters, and at most `rows` of each kind."""
    from perfkit.compare.results import Comparison
    from perfkit.render.brief import comparison, pages, report, tries
    from perfkit.tries.results import Try

    if isinstance(output.record, Report):
        return report.answer(output.record, length, rows)
    if isinstance(output.record, Comparison):
        return comparison.answer(output.record, length, rows)
    if isinstance(output.record, Try):
        return tries.answer(output.record, length, rows)
    return pages.answer(output, length, rows)
