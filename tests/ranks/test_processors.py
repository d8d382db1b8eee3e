"""Ranks on CPUs: what a library's threads do for them, in the steps of the program."""

from pathlib import Path

import pytest

from perfkit.ranks.analyse import analyse
from perfkit.ranks.rank_table import of_table
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


def test_what_two_threads_carry_out_at_once_begins_when_its_own_computation_has_ended(tmp_path: Path) -> None:
    """Rank 0 reduces two buckets at once, and has both 4 and 7 ms before rank 1, which multiplies for longer."""
    traces = []
    for number, (first, second) in enumerate([(1000, 2000), (5000, 9000)]):
        events = []
        for step in range(STEPS):
            at = 1.0 + 11_000 * step
            done = at + 5500  # the first bucket's reduction ends on both ranks
            events += [
                mark(f"ProfilerStep#{step}", at, at + 10_500), op("aten::mul", at, at + first, [[1 << 20]] * 2),
                mark("gloo:all_reduce", at + first, done, tid=9),
                op("aten::mul", at + first, at + second, [[1 << 20]] * 2),
                mark("gloo:all_reduce", at + second, at + 10_000, tid=10),
                op("c10d::allreduce_", at + 10_000, at + 10_001), op("c10d::allreduce_", at + 10_001, at + 10_002),
            ]  # fmt: skip
        told = {"rank": number, "world_size": 2, "backend": "gloo"}
        traces.append(write(tmp_path / f"rank{number}.pt.trace.json", events, distributedInfo=told))
    (found,) = analyse([of_table(read(path)) for path in traces]).stragglers
    assert (found.rank, found.late_ns.value) == (1, pytest.approx(7e6, rel=1e-3))
