"""Savings where ranks are late: only waiting that no computation covers, worked out by hand."""

from __future__ import annotations

import pytest

from perfkit import readers
from perfkit.ranks import rank_table
from perfkit.ranks.analyse import analyse
from perfkit.ranks.results import EQUAL_RANKS
from tests.support.ranks import simulated
from tests.support.ranks.streams import compute, member, talk

MS = 1e3  # µs
STEP = 100.0

# Kernels of two ranks in a step of 100 ms, as (kind, start, length) in ms, and what equal ranks save of it.
LATE = [("compute", 0, 60), ("talk", 60, 10)]
FIRST, SECOND = [("compute", 0, 30), ("talk", 30, 10)], [("compute", 0, 10), ("talk", 10, 30)]
CASES = {
    # The other comes after 10 ms and waits for 50: 30 of them during its own computation, which would cover the 10 ms
    # of the transfer as well if that began at 10.
    "covered in part": (LATE, [("compute", 0, 40), ("talk", 10, 60)], 30),
    "not covered": (LATE, [("compute", 0, 10), ("talk", 10, 60)], 50),
    "covered, but for the transfer": (LATE, [("compute", 0, 60), ("talk", 10, 60)], 10),
    "covered whole": (LATE, [("compute", 0, 60), ("talk", 10, 60), ("other", 60, 10)], 0),
    # The same kernel takes 5 ms longer while the collective waits next to it, and 5 ms of transfer are left.
    "covered, and slowed down": (LATE, [("compute", 0, 65), ("talk", 10, 60)], 10),
    # A second collective, on another stream: its own time of 10 ms from 30 on stays, and 40 ms are saved.
    "during transfer": (
        [*LATE[:1], ("talk", 30, 10), LATE[1]], [("compute", 0, 10), ("talk", 30, 10), ("talk", 10, 60)], 40,
    ),
    # Each is late by 20 ms once, and the other waits: the step has both delays.
    "in turn": ([*FIRST, ("talk", 50, 30)], [*SECOND, ("compute", 40, 30), ("talk", 70, 10)], 40),
    # The first computes while it waits for the second: it saves its own delay and the transfer, and so does the step.
    "in turn, one covered": (
        [*FIRST, ("compute", 40, 30), ("talk", 50, 30)], [*SECOND, ("compute", 40, 30), ("talk", 70, 10)], 30,
    ),
}  # fmt: skip


KINDS = {"compute": compute, "talk": talk, "other": lambda start, us: compute(start, us, short_name="gelu")}


def rank(number, kernels, ranks=2):
    made = [KINDS[kind](start * MS, ms * MS) for kind, start, ms in kernels]
    return member(number, ranks, made, STEP * 1e6, 4, "NVIDIA H200")


def equal(report):
    return next(one for one in report.what_ifs if one.name == EQUAL_RANKS)


@pytest.mark.parametrize("name", CASES)
def test_equal_ranks_save_what_no_computation_covers(name):
    *kernels, saved = CASES[name]
    found = equal(analyse([rank(i, ours) for i, ours in enumerate(kernels)]))
    assert (found.saves_ns, found.step_ns) == pytest.approx((saved * 1e6, (STEP - saved) * 1e6))


def test_a_straggler_saves_what_no_computation_covers_and_says_what_differs():
    late, early, _ = CASES["covered in part"]
    report = analyse([rank(0, late), rank(1, early)])
    (one,) = report.stragglers
    assert (one.late_ns.value, one.mean_ns, one.exposed_ns.value) == pytest.approx((50e6, 50e6, 30e6))
    (found,) = [finding for finding in report.findings if finding.name == "straggler"]
    assert (found.time_ns, found.saving_ns) == pytest.approx((50e6, 30e6))
    assert found.saving_low_ns == pytest.approx(found.saving_high_ns) == pytest.approx(30e6)
    differs = (
        "On average it is 50.00 ms, of which at most 30.00 ms lengthens the step: computation of the others covers the "
        "rest."
    )
    assert report.headline[0].endswith(differs) and found.evidence.endswith(differs)
    most = "waits most: 20.00 ms of its step of 100.0 ms, and 30.00 ms more that its computation covers."
    assert most in report.headline[1]


def test_a_delay_that_is_covered_whole_is_named_but_saves_nothing():
    late, early, _ = CASES["covered whole"]
    report = analyse([rank(0, late), rank(1, early)])
    assert [one.rank for one in report.stragglers] == [0] and "straggler" not in {f.name for f in report.findings}


def test_a_rank_of_another_group_does_not_hide_what_is_saved():
    """Ranks 2 and 3 see nothing of the delay in their own group; how they wait for ranks 0 and 1 is not known."""
    late, early, saved = CASES["covered in part"]
    ranks = [rank(0, late, 4), rank(1, early, 4), rank(2, late, 4), rank(3, late, 4)]
    for one in ranks:
        talks = one.is_collective
        one.frame.loc[talks, "group"] = "a [0, 1]" if one.rank < 2 else "b [2, 3]"
    assert equal(analyse(ranks)).saves_ns == pytest.approx(saved * 1e6)


def test_the_pause_of_a_late_host_and_its_causes_are_both_means():
    """1 ms a layer, 7 in the first step: 6 ms a step on the mean, 4 in the median step."""

    def plan(rank, step, layer):
        return {"host": 7e6 if step == 0 else 1e6, "cause": "dispatch"} if rank == 1 else {}

    (found,) = analyse(simulated.job(2, plan, noise=0.0)).stragglers
    assert found.late_ns.value == pytest.approx(4e6) and found.mean_ns == pytest.approx(6e6)
    assert found.causes[0].text == "it is 6.00 ms longer between operators than the others (dispatch 6.00 ms)"


def test_causes_that_are_known_over_all_steps_say_so_where_a_rank_is_late_in_some():
    def plan(rank, step, layer):
        return {"host": 3e6, "cause": "dispatch"} if rank == 1 and step % 3 == 2 else {}

    (found,) = analyse(simulated.job(4, plan, noise=0.0)).stragglers
    assert "is 12.00 ms longer" in found.causes[0].text and "(over all steps: dispatch 4.00 ms)" in found.causes[0].text


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_no_step_of_real_ranks_gets_shorter_than_their_work(samples, kind):
    folder = samples / "kineto" / "ranks"
    report = analyse([rank_table.of_table(readers.read(folder / f"{kind}.rank{r}.json.gz")) for r in (0, 1)])
    # Of the late rank: no collective waits next to its kernels. Rank 1 waits, and its kernels take longer.
    work = report.parts[0].compute_ns + report.parts[0].exposed_ns
    slowed = report.parts[1].compute_ns - report.parts[0].compute_ns
    assert equal(report).step_ns >= work and slowed > 0
    late = {"ddp": 7.2e6, "fsdp": 52.5e6}[kind]
    assert equal(report).saves_ns == pytest.approx(late + slowed, rel=0.05)
    assert equal(report).step_ns + equal(report).saves_ns == pytest.approx(report.step_ns.value)
    late = [one for one in report.findings if one.name == "straggler"]
    assert all(one.saving_ns <= equal(report).saves_ns + 1 for one in late) and len(late) == 1
