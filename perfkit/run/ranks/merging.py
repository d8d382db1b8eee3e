"""Merge the results of several ranks, by the command of the worker that gave them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from perfkit.correctness import FirstSteps
from perfkit.run_folder import Check, RankRun


def merged(command: str, results: Sequence[Any]) -> Any:
    """One result of all ranks'; rank 0's where the others' add nothing."""
    return _MERGED.get(command, lambda all_of_them: all_of_them[0])(results)


def keep(ranks: Sequence[RankRun], command: str, results: Sequence[Any]) -> None:
    """Note at each rank what it measured."""
    for rank, result in zip(ranks, results, strict=True):
        if command == "time":
            rank.steps_ns += result
        elif command == "peak_memory":
            rank.peak_bytes = result[0]
        elif command == "profile":
            rank.trace, rank.profiled_ns = result["trace"], result["profiled_ns"]


def _slowest(results: Sequence[list[float]]) -> list[float]:
    """Every rank begins a step with the others: it is as long as its slowest rank."""
    return [max(times) for times in zip(*results, strict=True)]


def _largest(results: Sequence[tuple[float | None, str]]) -> tuple[float | None, str]:
    known = [amount for amount, _ in results if amount is not None]
    return max(known, default=None), f"{results[0][1]}, of the rank with most"


def _sums(results: Sequence[tuple[float | None, ...]]) -> tuple[float | None, ...]:
    return tuple(None if None in values else sum(values) for values in zip(*results, strict=True))


def _first_steps(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = [result["found"] for result in results]
    return {
        **results[0],
        "found": FirstSteps(
            losses=found[0].losses,
            errors=_worst([f.errors for f in found]),
            updates=_worst([f.updates for f in found]),
            updates_in=found[0].updates_in,
            parts=_worst_checks([check for f in found for check in f.parts]),
            problems=list(dict.fromkeys(problem for f in found for problem in f.problems)),
        ),
        "first_step_ns": max(result["first_step_ns"] for result in results),
        "prepare_ns": max(result["prepare_ns"] for result in results),
        "warnings": list(dict.fromkeys(warning for result in results for warning in result["warnings"])),
    }


def _worst(errors: Sequence[dict[str, float | None]]) -> dict[str, float | None]:
    """Return by name the largest error of the ranks that have the tensor (NaN: another does); None where one is not
    comparable, or none has it."""
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(name for of_a_rank in errors for name in of_a_rank):
        held = [e[name] for e in errors if name in e]
        held = [error for error in held if error is None or not math.isnan(error)]
        found[name] = max(held, key=_size, default=None)
    return found


def _worst_checks(checks: Sequence[Check]) -> list[Check]:
    worst: dict[str, Check] = {}
    for check in checks:
        before = worst.get(check.name, check)
        worst[check.name] = max(before, check, key=lambda c: (not c.ok, _size(c.error)))
    return list(worst.values())


def _size(error: float | None) -> float:
    return math.inf if error is None else error


_MERGED: dict[str, Callable[[Sequence[Any]], Any]] = {
    "first_steps": _first_steps,
    "settle": _slowest,
    "time": _slowest,
    "peak_memory": _largest,
    "paging": _sums,
}
