"""The memory and the vector units as the compiled programs in `native/` measure them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from perfkit.hardware.ceilings import IN_PLACE, MEMORY
from perfkit.hardware.compiler import build_program
from perfkit.hardware.observation import Effort, Observation
from perfkit.hardware.subprocesses import json_lines, thread_settings

NATIVE = Path(__file__).with_name("native")
# On a machine so busy that a round takes longer, what has not run by then is left out; the first round may take longer.
_TIME_LIMITS = (15.0, 6.0)


def bandwidth(plan: Effort, threads: int, stream_from: int, number: int) -> Iterator[Observation]:
    """One round over all working sets. Stores that bypass the cache are tried from `stream_from` bytes on.

    Raises `Unavailable` without a compiler and `RunFailed` where the program cannot be built or run.
    """
    # The largest first, then every other: if time runs out, only sizes between measured ones are missing.
    order = [*plan.sizes[-1:], *plan.sizes[:-1:2], *plan.sizes[1:-1:2]]
    yield from _bandwidth(plan, threads, "zigzag", stream_from, order, number)
    if plan.main_memory:
        yield from _bandwidth(plan, threads, "ascending", 0, [plan.main_memory], number)


def vector(plan: Effort, threads: int, number: int) -> Iterator[Observation]:
    """One round of multiply-add (and integer add and xor) chains in registers; raises like `bandwidth`."""
    command = [str(build_program(NATIVE / "vector.c")), str(plan.vector_s)]
    for line in json_lines(command, thread_settings(threads), _limit(number), "The vector measurement"):
        operation = "add and xor" if line["resource"] == "vector_int" else "multiply-add"
        yield Observation(
            resource=line["resource"],
            what=operation,
            how=f"C, OpenMP, chains of {line['bits']}-bit {operation} in registers",
            rate=line["best"],
            by="c",
            round=number,
            ok=line["ok"],
        )


def region_s(plan: Effort, threads: int) -> float | None:
    """Seconds from the begin of an empty parallel region to its end, the median; None where threads went missing.

    Raises like `bandwidth`.
    """
    line = _of_threads("region.c", plan, threads, "The measurement of a parallel region")
    return 1 / line["median"] if line["ok"] else None


def handover(plan: Effort, threads: int) -> float | None:
    """Bytes/s at which threads read what all of them wrote in another division, at best; None where it went wrong.

    Raises like `bandwidth`.
    """
    line = _of_threads("handover.c", plan, threads, "The measurement of what other threads wrote")
    return line["best"] if line["ok"] else None


def _of_threads(source: str, plan: Effort, threads: int, what: str) -> dict[str, Any]:
    command = [str(build_program(NATIVE / source)), str(plan.vector_s)]
    [line] = json_lines(command, thread_settings(threads), _limit(0), what)
    return line


def _bandwidth(
    plan: Effort, threads: int, order: str, stream_from: int, sizes: Sequence[int], number: int
) -> Iterator[Observation]:
    if not sizes:
        return
    program = build_program(NATIVE / "bandwidth.c")
    command = [str(program), str(plan.pattern_s), order, str(stream_from), *map(str, sizes)]
    for line in json_lines(command, thread_settings(threads), _limit(number), "The bandwidth measurement"):
        yield Observation(
            resource=IN_PLACE if line["pattern"] == "negate" else MEMORY,
            what=line["pattern"],
            how=f"C, OpenMP, {line['stores']} stores, {order}",
            rate=line["best"],
            by="c",
            round=number,
            working_set=line["bytes"],
            ok=line["ok"],
        )


def _limit(number: int) -> float:
    return _TIME_LIMITS[min(number, 1)]
