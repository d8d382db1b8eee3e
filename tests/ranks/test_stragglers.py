"""Stragglers, their delay and its cause: planted in simulated jobs."""

from __future__ import annotations

import numpy as np
import pytest

from perfkit.ranks import causes
from perfkit.ranks.analyse import analyse
from perfkit.ranks.rank_table import RankTable
from tests.support.ranks import streams
from tests.support.ranks.simulated import KERNEL_NS, LAYERS, job

LATE = 1e6  # ns a layer


def only(rank, **change):
    return lambda r, step, layer: change if r == rank else {}


PLANTED = {
    # name: plan, ranks of the job, the late ones, ns a late step, kind of cause, words of the cause
    "host sleeps": (only(1, host=LATE, cause="Python"), 2, {1}, LAYERS * LATE, "host", "Python code"),
    "slow loader": (
        lambda r, s, layer: {"host": 5e6, "cause": "data"} if r == 0 and layer == 0 else {},
        4, {0}, 5e6, "host", "the data loader",
    ),
    "one longer kernel": (
        only(2, longer=1 + LATE / KERNEL_NS), 4, {2}, LAYERS * LATE, "kernels", "its kernel gemm",
    ),
    "lower clock": (only(3, clock=1.25), 4, {3}, LAYERS * KERNEL_NS * 4 / 3 * 0.25, "kernels", "a lower clock"),
    "larger tensors": (
        only(1, longer=1.5, shape="bf16[768×768]"), 4, {1}, LAYERS * KERNEL_NS / 2, "work", "bf16[768×768]",
    ),
    "more kernels": (only(0, extra=2), 2, {0}, LAYERS * KERNEL_NS * 2 / 3, "work", "more work: 8 kernels"),
    "copies": (only(1, copies=LATE), 2, {1}, LAYERS * LATE, "copies", "its copies"),
    "every third step": (
        lambda r, s, layer: {"host": LATE, "cause": "sync"} if r == 1 and s % 3 == 2 else {},
        4, {1}, LAYERS * LATE, "host", "waits for the GPU",
    ),
    "two of four": (
        lambda r, s, layer: {"host": LATE, "cause": "Python"} if r in (1, 3) else {},
        4, {1, 3}, LAYERS * LATE, "host", "Python code",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_straggler_is_named_with_its_delay_and_cause(name):
    plan, ranks, late, ns, kind, words = PLANTED[name]
    found = analyse(job(ranks, plan, seed=len(name))).stragglers
    assert {one.rank for one in found} == late
    for one in found:
        assert one.late_ns.value == pytest.approx(ns, rel=0.15)
        assert one.late_ns.low <= one.late_ns.value <= one.late_ns.high
        assert one.causes[0].kind == kind and words in one.causes[0].text
        assert one.causes[0].ns == pytest.approx(ns, rel=0.2)
    if name == "every third step":
        assert (found[0].late_steps, found[0].steps) == (4, 12)


@pytest.mark.parametrize(("burst", "told", "steps"), [(12.0, 12.0, 4), (1.5, 1.0, 12)])
def test_of_a_rank_late_always_and_more_in_bursts_the_larger_delay_is_told(burst, told, steps):
    """In every third step `burst` ms a layer, in the others 1."""

    def plan(rank, step, layer):
        return {"host": (burst if step % 3 == 2 else 1.0) * 1e6, "cause": "Python"} if rank == 1 else {}

    (found,) = analyse(job(4, plan, seed=2)).stragglers
    assert (found.rank, found.late_steps) == (1, steps)
    assert found.late_ns.value == pytest.approx(LAYERS * told * 1e6, rel=0.15)


@pytest.mark.parametrize("seed", range(8))
def test_nobody_is_named_in_a_healthy_job(seed):
    report = analyse(job(2 + 2 * (seed % 3), noise=0.05, seed=seed))
    assert report.stragglers == []
    assert report.headline[0].startswith("No rank is named a straggler")


def late_in(steps, ns):
    return lambda r, s, layer: {"host": ns, "cause": "Python"} if r == 1 and s in steps and layer == 0 else {}


@pytest.mark.parametrize(
    ("steps", "ns", "named"),
    [
        (range(12), 0.3e6, False),  # 2.7 % of the step, and no more than hosts differ under a profiler
        (range(12), 0.8e6, True),
        ((2, 7), 3e6, False),  # 27 % of the step: one of two ranks has both by chance
        ((0, 2, 4, 7, 9, 11), 3e6, True),  # six, by chance in 1 of 64 jobs
        ((2, 7), 8e6, True),  # 70 %: no hiccup
    ],
)
def test_what_a_profiled_machine_does_by_itself_names_nobody(steps, ns, named):
    found = analyse(job(2, late_in(steps, ns), noise=0.001)).stragglers
    assert [one.rank for one in found] == ([1] if named else [])


def test_the_parts_of_a_rank_add_up():
    members = job(4, only(1, host=LATE))
    report = analyse(members)
    for part, member in zip(report.parts, members, strict=True):
        talks = member.is_collective
        together = part.waiting_ns + part.exposed_ns + part.overlapped_ns
        assert together * member.steps == pytest.approx(float(member.frame["duration_ns"][talks].sum()))
        parts = part.compute_ns + part.waiting_ns + part.exposed_ns + part.copy_ns + part.idle_ns
        assert parts == pytest.approx(part.step_ns, rel=1e-6)
    assert report.parts[1].waiting_ns < 0.01 * report.parts[0].waiting_ns


def test_equal_ranks_would_save_what_the_late_one_delays():
    report = analyse(job(4, only(1, host=LATE), noise=0.0))
    saved = {one.name: one.saves_ns for one in report.what_ifs}
    assert saved["equal ranks"] == pytest.approx(LAYERS * LATE, rel=1e-6)
    assert np.isclose(saved["perfect overlap"], LAYERS * 0.4e6)


def test_a_slower_kernel_of_a_long_name_is_named_in_short() -> None:
    """A headline printed 500 characters of one kernel of hipBLASLt."""
    name, shapes = "Cijk_Alik_Bljk_" + "BBS_BH_Bias_" * 40 + "WG32_8_1", ", ".join(["bf16[4096×4096]"] * 9)
    usual = {(name, shapes): (1e6, 4), ("add", ""): (9e6, 4)}
    text = causes._slower({**usual, (name, shapes): (2e6, 4)}, [usual], 2)
    assert len(text) < 160 and "Cijk_Alik_Bljk_" in text and "WG32_8_1 of 9 × bf16[4096×4096]" in text


# One step of DDP on two GPUs, ms: start and length of what computes a bucket, and of its all-reduce. Rank 1 begins its
# backward pass 30 ms late. Rank 0's first bucket waits for it from 7 ms on, and the others behind it in the stream,
# while rank 0 computes on. Every all-reduce takes 1 ms by itself.
BUCKETS = 8
EARLY = [(3 + 4 * n, 4, 7 + 4 * n if n == 0 else 38 + 4 * (n - 1), 31 if n == 0 else 4) for n in range(BUCKETS)]
DELAYED = [(33 + 4 * n, 4, 37 + 4 * n, 1) for n in range(BUCKETS)]


def kernels_of(computed, ms, began, lasted):
    return streams.compute(computed * 1e3, ms * 1e3), streams.talk(began * 1e3, lasted * 1e3)


def with_buckets(*ranks, step=80.0):
    made = []
    for number, buckets in enumerate(ranks):
        rows = [row for bucket in buckets for row in kernels_of(*bucket)]
        made.append(streams.member(number, len(ranks), rows, step * 1e6, 4, "NVIDIA H200"))
    return made


def test_a_rank_that_is_late_for_every_bucket_is_late_once():
    """The kernels of the all-reduces wait 58 ms together on rank 0; its step is 30 ms longer."""
    (found,) = analyse(with_buckets(EARLY, DELAYED)).stragglers
    assert (found.rank, found.late_ns.value) == (1, pytest.approx(30e6))
    assert found.exposed_ns.value == pytest.approx(30e6)


def test_a_rank_that_is_late_again_after_the_others_stood_still_is_late_twice():
    """Both ranks need each result before they go on, as the layers of FSDP do."""
    early = [(10 * n, 1, 10 * n + 1, 9) for n in range(BUCKETS)]
    late = [(10 * n, 7, 10 * n + 7, 3) for n in range(BUCKETS)]
    (found,) = analyse(with_buckets(early, late)).stragglers
    assert (found.rank, found.late_ns.value) == (1, pytest.approx(BUCKETS * 6e6))


def test_a_rank_is_late_once_where_computation_keeps_collectives_from_the_multiprocessors():
    """Rank 0's buckets wait for the one before, and 0.4 ms more until a kernel of its backward pass ends."""
    held = [EARLY[0], *((c, ms, t + 0.4, long - 0.4) for c, ms, t, long in EARLY[1:])]
    (found,) = analyse(with_buckets(held, DELAYED)).stragglers
    assert (found.rank, found.late_ns.value) == (1, pytest.approx(30e6))


def test_a_rank_is_late_once_where_the_others_wait_for_their_own_hosts():
    """Each host launches 1 ms of computation and its bucket every 4 ms; rank 1 does so 5 ms after rank 0, whose GPU
    idles between, next to a bucket that waits for rank 1. Without the delay it would idle as long."""
    early = [(4 * n, 1, 1 if n == 0 else 4 * n + 3, 6 if n == 0 else 4) for n in range(BUCKETS)]
    late = [(4 * n + 5, 1, 4 * n + 6, 1) for n in range(BUCKETS)]
    report = analyse(with_buckets(early, late))
    (found,) = report.stragglers
    assert (found.rank, found.late_ns.value) == (1, pytest.approx(5e6))
    assert report.parts[0].waiting_ns > 15e6 and found.exposed_ns.value == pytest.approx(5e6)


def test_collectives_that_begin_in_another_order_on_a_rank_are_the_same():
    """Two threads of gloo begin a small and a large one at the same time, and either is recorded first."""
    made = with_buckets(EARLY, DELAYED)
    for member, swapped in zip(made, ((), (1,)), strict=True):
        small = member.is_collective & (np.arange(len(member.frame)) % (2 * BUCKETS) == 3)
        member.frame.loc[small, "message_bytes"] = 1024.0
        for step in swapped:
            one, two = np.flatnonzero(member.is_collective & (member.step == step))[:2]
            member.frame.loc[[one, two], "order"] = member.frame.loc[[two, one], "order"].to_numpy()
    report = analyse(made)
    (found,) = report.stragglers
    assert not report.problems and (found.late_steps, found.late_ns.value) == (4, pytest.approx(30e6))


def test_a_rank_that_shares_no_collective_is_late_for_none():
    first, second, third = with_buckets(EARLY, DELAYED, EARLY)
    for member in (first, second):
        member.frame.loc[member.is_collective, "group"] = "dp [0, 1]"
    third.frame.loc[third.is_collective, "group"] = "dp [2, 3]"
    report = analyse([first, second, third])
    (found,) = report.stragglers
    assert (found.rank, found.late_ns.value) == (1, pytest.approx(30e6)) and report.parts[2].late_steps == 0


def test_a_collective_whose_duration_no_trace_has_says_nothing():
    """Traces of AMD's GPUs hold kernels of 0 ns, which are of unknown length."""
    made = with_buckets(EARLY, DELAYED)
    for member in made:
        member.frame.loc[np.flatnonzero(member.is_collective)[[3, 9]], "duration_ns"] = np.nan
    (found,) = analyse(made).stragglers
    assert (found.rank, found.late_ns.value) == (1, pytest.approx(30e6))


def test_a_step_without_a_common_collective_says_nothing_of_lateness():
    first, second = with_buckets(EARLY, DELAYED)
    rows = first.frame[~(first.is_collective & (first.step == 1))].reset_index(drop=True)
    report = analyse([RankTable(first.rank, first.world_size, first.path, rows, first.facts), second])
    (found,) = report.stragglers
    assert (found.rank, found.late_steps, found.late_ns.value) == (1, 3, pytest.approx(30e6))
    saved = {one.name: one.saves_ns for one in report.what_ifs}
    assert saved["equal ranks"] == pytest.approx(30e6)


def test_a_rank_that_loses_more_between_two_buckets_is_later_by_that():
    lost = [(c + (5 if n > 3 else 0), ms, t + (5 if n > 3 else 0), long) for n, (c, ms, t, long) in enumerate(DELAYED)]
    early = [*EARLY[:4], (19, 4, 50, 9), *((c, ms, t + 5, long) for c, ms, t, long in EARLY[5:])]
    (found,) = analyse(with_buckets(early, lost)).stragglers
    assert found.late_ns.value == pytest.approx(35e6)
