"""Results in at most 4 KB of JSON, for code agents and CI (docs/agents.md).

    {"schema": 1, "of": "run", "measured": {...}, "verdict": [...], "backends": [...], "findings": [...], ...}

Every number is one of the full result, in its base unit (ns, bytes, FLOP, shares from 0 to 1). Where the answer would
be longer, texts are cropped, then rows of the end are left out, and `left_out` says how many.
"""

from __future__ import annotations

import json
from typing import Any

from perfkit.analysis.results import Report
from perfkit.render.output import Output

SCHEMA = 1
LARGEST = 4096  # bytes of an answer
_TEXTS = (400, 320, 240, 200, 170, 140, 120, 100, 80, 60)  # characters of a sentence, in turn until the answer fits
_ROWS = (40, 20, 10, 5, 3, 2, 1)  # then this number of rows


def render(output: Output) -> str:
    """Return the answer about a result as one line of JSON of at most `LARGEST` bytes."""
    text = ""
    for length, rows in [*((length, _ROWS[0]) for length in _TEXTS), *((_TEXTS[-1], rows) for rows in _ROWS)]:
        answer = {"schema": SCHEMA, **_answer(output, length, rows)}
        text = json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        if len(text.encode()) < LARGEST:
            break
    return text + "\n"


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
