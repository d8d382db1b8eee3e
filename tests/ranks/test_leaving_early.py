"""Broadcasts and messages over gloo: a rank may leave them before the others come, and the clocks show who waits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfkit.ranks.analyse import of_job
from perfkit.ranks.rank_group import RankGroup, together
from perfkit.ranks.rank_table import of_table
from perfkit.readers import read
from tests.support.readers.traces import Event, mark, op, write

STEPS, STEP, OWN = 3, 10_000.0, 50.0  # µs
GROUP = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo", "pg_size": 2, "ranks": [0, 1]}
SHAPE = {"Input Dims": [[1024]], "Input type": ["float"]}


def job(folder: Path, *ranks: list[tuple[str, float, float, int]]) -> RankGroup:
    """Ranks whose steps hold ranges of gloo: name, start and end in µs, and thread."""
    members = []
    for rank, ranges in enumerate(ranks):
        events: list[Event] = []
        for step in range(STEPS):
            at = 1.0 + step * STEP
            events += [mark(f"ProfilerStep#{step}", at, at + STEP - 1), op("aten::mul", at + 10, at + 60, [[4], [4]])]
            for name, start, end, thread in ranges:
                if thread == 1:  # of a message: it opens in the operator that asks for it
                    events.append(op(f"c10d::{name}_", at + start - 20, at + start + 5, [[1024]]))
                events.append(mark(f"gloo:{name}", at + start, at + end, tid=thread, **SHAPE))
        world = len(ranks)
        group = {**GROUP, "pg_size": world, "ranks": list(range(world))}
        told = {"rank": rank, "world_size": world, "backend": "gloo", "pg_config": [group]}
        path = write(folder / f"rank{rank}.pt.trace.json", events, distributedInfo=told)
        members.append(of_table(read(path)))
    return together(members, one_host=True)


def test_who_receives_a_broadcast_waits_for_its_root(tmp_path: Path) -> None:
    late, meets = 4_000.0, ("all_reduce", 8_000, 8_050, 9)
    found = job(
        tmp_path, [("broadcast", 5_000, 5_000 + OWN, 9), meets], [("broadcast", 1_000, 5_000 + OWN, 9), meets]
    )  # fmt: skip
    report = of_job(found, [], None, None)
    assert [p.waiting_ns for p in report.parts] == [0, pytest.approx(late * 1e3)]
    assert [s.rank for s in report.stragglers] == [0] and report.stragglers[0].late_ns.value == late * 1e3
    assert report.parts[1].exposed_ns == pytest.approx(2 * OWN * 1e3)


def test_a_root_that_sends_for_long_waits_for_nobody_that_came_before(tmp_path: Path) -> None:
    meets = ("all_reduce", 8_000, 8_050, 9)
    found = job(tmp_path, [("broadcast", 2_000, 5_000, 9), meets], [("broadcast", 1_990, 2_100, 9), meets])
    assert np.nansum(found.waiting.wait) == 0 and np.nansum(found.waiting.lag) == 0


def test_a_rank_that_nobody_waits_for_is_not_late(tmp_path: Path) -> None:
    """Two of four ranks wait for the root of a broadcast; the last one comes when all is there."""
    meets = ("all_reduce", 9_000, 9_050, 9)
    starts = (5_000, 1_000, 1_000, 8_000)
    ends = (5_050, 5_050, 5_050, 8_050)
    found = job(tmp_path, *([("broadcast", a, b, 9), meets] for a, b in zip(starts, ends, strict=True)))
    lag = found.waiting.lag[[o == "broadcast" for o in found.matched.operation]]
    assert (lag[:, 1:] == 0).all() and (lag[:, 0] == 4_000e3).all()


def test_messages_between_two_ranks_are_pairs(tmp_path: Path) -> None:
    """Stage 1 of a pipeline computes for 3 ms and stage 0 waits as long; the ranges are on the program's own thread."""
    found = job(
        tmp_path,
        [("send", 1_000, 1_020, 1), ("recv", 1_100, 4_100, 1)],
        [("recv", 500, 1_050, 1), ("send", 4_050, 4_070, 1)],
    )
    report = of_job(found, [], None, None)
    talks = {c.group: c for c in report.collectives}
    assert set(talks) == {"0 → 1", "1 → 0"} and {c.operation for c in talks.values()} == {"send_recv"}
    assert talks["1 → 0"].waiting_ns == pytest.approx(2_950e3) and talks["0 → 1"].waiting_ns == pytest.approx(500e3)
    assert [p.waiting_ns for p in report.parts] == pytest.approx([2_950e3, 500e3])
    assert report.stragglers[0].rank == 1


def test_messages_among_more_ranks_are_not_paired(tmp_path: Path) -> None:
    meets = ("all_reduce", 8_000, 8_050, 9)
    found = job(tmp_path, *([("send", 1_000, 1_020, 1), meets] for _ in range(3)))
    assert set(found.matched.operation) == {"all_reduce"}
