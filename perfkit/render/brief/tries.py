"""The brief answer about a try: the decision, the results, and the step of both sides."""

from __future__ import annotations

import shlex
from typing import Any

from perfkit.render.brief import comparison
from perfkit.render.brief.texts import FINDINGS, LONGEST_PATH, cropped, known
from perfkit.render.cells import clean
from perfkit.tries.results import Try


def answer(done: Try, length: int, rows: int) -> dict[str, Any]:
    """Return the answer with sentences of `length` characters."""
    found = comparison.answer(done.comparison, length, min(rows, 2)) if done.comparison else {}
    checked = done.checked
    return known(
        {
            "of": "try",
            "measured": known({"title": cropped(shlex.join(done.command), length), "how": _how(found),
                               "device": cropped(done.machine_is, length)}),
            "verdict": [cropped(f"{done.decision}: {done.reason}", length)],
            "decision": done.decision,
            "results": known({"status": checked.status, "how": cropped(checked.how, length),
                              "why": cropped(checked.why, length), "error": checked.error, "allowed": checked.allowed,
                              "count": checked.count}),
            "change": known({"id": done.change, "files": [clean(file, 100) for file in done.files[:FINDINGS]],
                             "kept": done.kept or None}),
            "sides": found.get("sides"),
            "pairs": found.get("pairs"),
            "unknown": [cropped(text, length) for text in [*done.notes, *found.get("unknown", [])][:FINDINGS]],
            "more": ["perfkit history"],
            "left_out": {"files": len(done.files) - FINDINGS} if len(done.files) > FINDINGS else None,
        }
    )  # fmt: skip


def _how(found: dict[str, Any]) -> str:
    return str(found.get("measured", {}).get("how", ""))[:LONGEST_PATH]
