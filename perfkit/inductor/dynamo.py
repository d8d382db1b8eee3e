"""Dynamo's counts of the compilations of this process: graphs, graph breaks, and what was compiled again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_UTILITIES = "torch._dynamo.utils"


class Compilations:
    """The compilations since this was made."""

    def __init__(self) -> None:
        self._breaks_before = _graph_breaks()
        self._before = {id(metrics) for metrics in _metrics()}
        self._stacks_before = len(_break_stacks())

    @contextmanager
    def ignoring(self) -> Iterator[None]:
        """Compilations inside of the block do not count."""
        before = {id(metrics) for metrics in _metrics()}
        yield
        self._before |= {id(metrics) for metrics in _metrics()} - before

    def breaks(self) -> dict[str, int]:
        """Graph breaks by the first line of their reason."""
        since = {reason: count - self._breaks_before.get(reason, 0) for reason, count in _graph_breaks().items()}
        return {reason: count for reason, count in since.items() if count > 0}

    def warnings(self) -> list[str]:
        """A sentence a graph break."""
        return [
            f"The graph breaks {times} × ({reason.splitlines()[0]}): no fusion reaches across a break."
            for reason, times in self.breaks().items()
        ]

    def facts(self) -> dict[str, Any]:
        """Graphs, breaks and recompilations, for the manifest of a run."""
        compiled = [_compilation(metrics) for metrics in _metrics() if id(metrics) not in self._before]
        return {
            "graphs": len(compiled),
            "graph_breaks": {reason.partition("\n")[0]: count for reason, count in self.breaks().items()},
            "break_lines": _lines(_break_stacks()[self._stacks_before :]),
            "recompilations": [one for one in compiled if one["again"]],
        }


def _graph_breaks() -> dict[str, int]:
    """Graph breaks by reason that Dynamo has counted in this process so far."""
    utilities = sys.modules.get(_UTILITIES)  # not imported: nothing was compiled
    # A look at an absent key makes it, and the program may print them all.
    return dict(utilities.counters.get("graph_break", {})) if utilities is not None else {}


def _break_stacks() -> list[Any]:
    """The user's stack at each graph break that Dynamo has met in this process so far."""
    reasons = getattr(sys.modules.get(_UTILITIES), "graph_break_reasons", ())
    return [getattr(reason, "user_stack", None) for reason in reasons]


def _lines(stacks: list[Any]) -> list[dict[str, Any]]:
    """The innermost line of each stack, and how often it comes."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for frame in (stack[-1] for stack in stacks if stack):
        named = {"file": frame.filename, "line": frame.lineno or 0, "function": frame.name, "code": frame.line or ""}
        entry = found.setdefault((frame.filename, named["line"]), {**named, "count": 0})
        entry["count"] += 1
    return list(found.values())


def _metrics() -> list[Any]:
    """Dynamo's records of the last 64 compilations of this process, in order."""
    utilities = sys.modules.get(_UTILITIES)
    return list(utilities.get_compilation_metrics()) if utilities is not None else []


def _compilation(metrics: Any) -> dict[str, Any]:
    """The function, whether it was compiled again and by which failed guard, and the time in ns (None: unknown).

    Dynamo numbers compilations frame/number: of one frame all but the first compile it again.
    """
    number = str(getattr(metrics, "compile_id", "") or "").rpartition("/")[2]
    seconds = getattr(metrics, "entire_frame_compile_time_s", None)
    reason = getattr(metrics, "recompile_reason", None) or ""
    return {
        "function": str(getattr(metrics, "co_name", "") or "a graph"),
        "again": number.isdigit() and number != "0",
        "file": str(getattr(metrics, "co_filename", "") or ""),
        "line": getattr(metrics, "co_firstlineno", None) or 0,
        "reason": reason.splitlines()[0] if reason else "",
        "ns": seconds * 1e9 if seconds else None,
    }
