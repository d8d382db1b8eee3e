"""Source lines of findings and of the view "Lines", by the facts and the column `line` of the kernel table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perfkit.analysis.line_results import LineTime, SourceLine
from perfkit.profile_names import CALLS_COMPILED, FIRST_LINE

MOST = 3  # lines of a finding
_LEAST = 0.05  # of what a finding is about: a line with less is not named
# The amount by line that a finding is about, where it is about no rows of the table.
_MEASURES = {
    "sync": "wait_ns",
    "list-to-tensor": "list_ns",
    "gpu-idle": "idle_ns",
    "cuda-allocation": "idle_ns",
    "data": "loading_ns",
    "overhead": "between_ns",
    "low-clock": "",
}
_OF_A_CAPTURE = ("host_ns", "python_ns", "between_ns", "loading_ns", "idle_ns", "kernel_ns", "wait_ns")


def measure_of(rule: str) -> str:
    """The amount by line that findings of a rule are about; "" where lines say nothing of it."""
    return _MEASURES.get(rule, "")


def by_measure(facts: Mapping[str, Any], measure: str) -> list[SourceLine]:
    """The lines with the most of an amount, and their shares of it."""
    entries = [entry for entry in facts.get("lines") or [] if entry.get(measure)]
    unknown = (facts.get("unknown_lines") or {}).get(measure, 0.0)
    return _largest([(entry, entry[measure]) for entry in entries], unknown)


def by_lines(facts: Mapping[str, Any], time: Mapping[str, float]) -> list[SourceLine]:
    """The lines with the most `time` of some rows, which is given by line ("" for unknown)."""
    known = {entry["text"]: entry for entry in facts.get("lines") or []}
    found = [(known.get(line) or _parsed(line), ns) for line, ns in time.items() if line]
    return _largest(found, time.get("", 0.0))


def longer(late: Mapping[str, Any], steps: int, others: Sequence[tuple[Mapping[str, Any], int]]) -> list[SourceLine]:
    """The lines in which the host of one rank spends more time a step, waits in collectives left out, than the others
    do on average; each of `others` has its facts and number of steps."""
    usual: dict[str, float] = {}
    known = [(facts["lines"], max(count, 1)) for facts, count in others if facts.get("lines")]
    for lines, count in known:
        for entry in lines:
            usual[entry["text"]] = usual.get(entry["text"], 0.0) + entry["python_ns"] / count / len(known)
    own = late.get("lines") if known else []
    more = [(entry, entry["python_ns"] / max(steps, 1) - usual.get(entry["text"], 0.0)) for entry in own or []]
    return _largest([(entry, ns) for entry, ns in more if ns > 0])


def of_functions(compiled: Sequence[Mapping[str, Any]]) -> list[SourceLine]:
    """The functions that a compiler compiled again, by their first lines, where it names them."""
    return named([{**one, "exact": False} for one in compiled if one.get("file")])


def named(lines: Sequence[Mapping[str, Any]]) -> list[SourceLine]:
    """Lines that a compiler names, those that it names most often first."""
    return _largest([(line, float(line.get("count") or 1)) for line in lines])


def _largest(found: Sequence[tuple[Mapping[str, Any], float]], unknown: float = 0.0) -> list[SourceLine]:
    whole = unknown + sum(amount for _, amount in found)
    order = sorted(found, key=lambda one: -one[1])[:MOST]
    return [_line(entry, amount / whole) for entry, amount in order if whole and amount >= _LEAST * whole]


def _line(entry: Mapping[str, Any], share: float) -> SourceLine:
    return SourceLine(
        file=entry["file"], line=entry["line"], function=entry["function"], exact=entry.get("exact", True),
        compiled=entry.get("compiled", False), share=share, code=entry.get("code", ""),
        library=entry.get("library", ""),
    )  # fmt: skip


def _parsed(text: str) -> dict[str, Any]:
    """A line of the kernel table, `train.py:8 in augment`, of which the facts say nothing."""
    place, _, function = text.partition(" in ")
    file, _, line = place.rpartition(":")
    compiled = function.endswith(CALLS_COMPILED)
    exact = not compiled and not function.endswith(FIRST_LINE)
    function = function.removesuffix(CALLS_COMPILED).removesuffix(FIRST_LINE)
    number = int(line) if line.isdigit() else 0
    return {"file": file or place, "line": number, "function": function, "exact": exact, "compiled": compiled}


def table(facts: Mapping[str, Any], steps: int) -> list[LineTime]:
    """The cost of each line, a step, the most time on the host first."""
    found = []
    for entry in facts.get("lines") or []:
        a_step = {name: entry[name] / max(steps, 1) for name in _OF_A_CAPTURE if entry.get(name) is not None}
        counts = {name: entry[name] / max(steps, 1) for name in ("waits", "kernels")}
        own = {name: entry[name] for name in ("file", "line", "function", "exact", "code", "library")}
        own["compiled"] = entry.get("compiled", False)
        found.append(msgspec.convert(own | a_step | counts | {"bytes": entry.get("bytes")}, LineTime))
    return [*found, *_rest(facts, steps)] if found else []


def _rest(facts: Mapping[str, Any], steps: int) -> list[LineTime]:
    """The cost of what no line is known of, where there is any: the table accounts for all that the steps took."""
    unknown = facts.get("unknown_lines") or {}
    a_step = {name: unknown[name] / max(steps, 1) for name in (*_OF_A_CAPTURE, "waits", "kernels") if name in unknown}
    if not any(a_step.get(name) for name in ("host_ns", "idle_ns", "kernel_ns")):
        return []
    return [msgspec.convert({"file": "", "line": 0, "function": ""} | a_step, LineTime)]
