"""Ranks on CPUs: what a library's threads do for them, in the steps of the program."""

from pathlib import Path

import pytest

from perfkit.ranks.analyse import analyse
from perfkit.ranks.members import of_table
from perfkit.readers import read
from tests.support.readers.traces import mark, op, write

STEPS, STEP = 3, 100.0  # steps, and µs of each


def rank(folder: Path, number: int, late: float) -> Path:
    """A trace of a rank whose steps multiply, reduce, and add; the library's range closes `late` µs after its step."""
    events = []
    for step in range(STEPS):
        at = 1.0 + step * (STEP + 5)
        events += [
            mark(f"ProfilerStep#{step}", at, at + STEP), op("aten::mul", at + 5, at + 40, [[1 << 14], [1 << 14]]),
            op("c10d::allreduce_", at + 40, at + 42), mark("gloo:all_reduce", at + 42, at + STEP + late, tid=9),
            op("aten::add", at + 90, at + 95, [[1 << 14], [1 << 14]]),
        ]  # fmt: skip
    told = {"rank": number, "world_size": 2, "backend": "gloo"}
    return write(folder / f"rank{number}.pt.trace.json", events, distributedInfo=told)


@pytest.mark.parametrize("late", [-5.0, 0.0, 30.0])
def test_the_parts_of_a_step_add_up_although_a_range_closes_after_it(tmp_path: Path, late: float) -> None:
    found = analyse([of_table(read(rank(tmp_path, number, late))) for number in (0, 1)])
    for part in found.parts:
        assert part.step_ns == STEP * 1e3 and part.compute_ns == 40e3
        told = part.compute_ns + part.waiting_ns + part.exposed_ns + part.idle_ns
        assert told == pytest.approx(part.step_ns, rel=1e-9)
