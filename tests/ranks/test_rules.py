"""Every rule of ranks finds the fault planted for it, with the saving worked out by hand, and none in its twin."""

from __future__ import annotations

import pytest

from perfkit import readers
from perfkit.hardware.collectives.results import CollectiveSweep, SizeTime
from perfkit.ranks import rank_table
from perfkit.ranks.analyse import analyse
from perfkit.ranks.rules import RULES
from perfkit.render import page
from perfkit.render.pages import ranks as ranks_page
from tests.support.ranks import simulated
from tests.support.ranks.streams import COMPUTE, TALK, compute, job, talk

MiB = 2.0**20


WIRE = MiB / (0.55 * 450e9) * 1e6  # µs that 1 MiB takes of a call of 50, where a link reaches 55 % of its datasheet


def late(rank, step, layer):
    return {"host": 1e6} if rank == 1 else {}


def beside(kernels, step=1000.0, **changes):
    """Collectives overlapped by computation, over the whole step."""
    return job([compute(0, step), *kernels], step, **changes)


def gathered(ahead):
    """Three blocks: gathered while the one before computes, or when it has ended."""
    kernels = [talk(0, 50, "all_gather", "bf16")]
    for i in range(1, 4):
        start = 50 + 250 * (i - 1) if not ahead else 50 + 200 * (i - 1)
        gather = talk(start if ahead else start + 205, 40, "all_gather", "bf16")
        kernels += [gather, compute(start, 200)] if ahead else [compute(start, 200), gather]
    end = 650 if ahead else 800
    return job([*kernels, compute(end, 200)], end + 200)


def queued(one_queue):
    """Two pairs of collectives; what is launched after the second of a pair waits for it, or passes it."""
    kernels = []
    for base in (0, 500):
        kernels += [talk(base + 10, 190, dtype="bf16"), compute(base, 60), talk(base + 202, 100, dtype="bf16")]
        kernels += [compute(base + 204, 290)] if one_queue else [compute(base + 61, 430)]
    return job(kernels, 1000)


def at(rate, ranks=2):
    """A sweep that reaches `rate` bytes/s at every size."""
    points = [SizeTime(bytes=size, seconds=size / rate, calls=20) for size in (MiB, 64 * MiB, 512 * MiB)]
    return [CollectiveSweep(operation="all_reduce", ranks=ranks, carrier="nccl", measured_at="", points=points)]


SLOW = [compute(0, 500), talk(500, 1000, dtype="bf16", size=64 * MiB)]  # 67 GB/s
FAST = [compute(0, 500), talk(500, 240, dtype="bf16", size=64 * MiB)]  # 280 GB/s
# rule: faulty ranks, healthy ones, µs that it saves in a step
FAULTS = {
    "straggler": (lambda: simulated.job(2, late, noise=0.0), lambda: simulated.job(2, noise=0.0), 4000),
    "exposed-collective": (
        lambda: job([compute(0, 600), talk(500, 400, dtype="bf16")], 1000), lambda: beside([talk(500, 400)]), 300,
    ),
    "small-buckets": (
        lambda: job([compute(0, 600), *(talk(600 + 50 * i, 50, size=MiB) for i in range(4))], 1000),
        lambda: beside([talk(200 * i, 50, size=MiB) for i in range(4)]), 200 - (50 + 3 * WIRE),
    ),
    "fp32-gradients": (
        lambda: job([compute(0, 600), talk(600, 400)], 1000),
        lambda: job([compute(0, 600), talk(600, 400, dtype="bf16")], 1000), 200,
    ),
    "no-prefetch": (lambda: gathered(False), lambda: gathered(True), 120),
    "one-queue": (lambda: queued(True), lambda: queued(False), 288),
    "slow-link": (lambda: job(SLOW, 1500), lambda: job(FAST, 740), 1000 * (1 - 67.1 / (0.55 * 450))),
}  # fmt: skip


def found(report):
    return {one.name: one for one in report.findings}


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_a_planted_fault_is_found_by_its_rule_and_a_healthy_job_has_none(rule):
    planted, healthy, saving_us = FAULTS[rule]
    one = found(analyse(planted()))[rule]
    assert one.saving_ns == pytest.approx(saving_us * 1e3, rel=0.01)
    assert one.title and one.evidence and one.remedy and 0.02 <= one.share <= 1
    assert rule not in found(analyse(healthy()))


def test_a_straggler_has_the_interval_of_its_delay():
    one = found(analyse(simulated.job(4, late)))["straggler"]
    assert one.ranks == [1] and one.saving_low_ns <= one.saving_ns <= one.saving_high_ns
    assert "host launches late" in one.evidence or "between operators" in one.evidence


def test_what_was_measured_here_decides_over_the_datasheet():
    """280 GB/s are much for NVLink 4 by its datasheet, and little where 450 GB/s were measured."""
    ranks = job(FAST, 740)
    assert "slow-link" not in found(analyse(ranks, roofs=at(300e9)))
    one = found(analyse(ranks, roofs=at(450e9)))["slow-link"]
    assert one.saving_ns == pytest.approx(240e3 * (1 - 279.6 / 450), rel=0.01)
    assert found(analyse(job(SLOW, 1500), roofs=at(70e9))).keys() == {"exposed-collective"}


def test_links_of_an_unknown_kind_are_not_judged():
    report = analyse(job(SLOW, 1500, gpu="NVIDIA GeForce RTX 3090"))
    assert "slow-link" not in found(report) and [one.rule for one in report.unjudged] == ["slow-link"]
    assert "perfkit ceilings --ranks N" in page.render_text(ranks_page.page(report))


def test_the_environment_of_the_run_tells_of_one_queue():
    held = {"gpu_queues": "1"}
    assert "environment says so" in found(analyse(queued(True), environment=held))["one-queue"].evidence
    assert "one-queue" not in found(analyse(queued(True), environment={"gpu_queues": "32"}))


def test_small_messages_of_a_measured_link_are_those_below_half_of_its_best():
    """8 MiB are small where 64 MiB go four times as fast, and not where they are as fast."""
    kernels = [compute(0, 600), *(talk(600 + 100 * i, 100, dtype="bf16", size=8 * MiB) for i in range(4))]
    points = [SizeTime(bytes=8 * MiB, seconds=100e-6, calls=20), SizeTime(bytes=64 * MiB, seconds=200e-6, calls=20)]
    sweep = CollectiveSweep(operation="all_reduce", ranks=2, carrier="nccl", measured_at="", points=points)
    one = found(analyse(job(kernels, 1000), roofs=[sweep]))["small-buckets"]
    joined = 2 * sweep.seconds(16 * MiB) * 1e6  # two buckets of 16 MiB
    assert one.saving_ns == pytest.approx((400 - joined) * 1e3, rel=0.01)
    assert "small-buckets" not in found(analyse(job(kernels, 1000), roofs=at(80e9)))


def _reduced(size, us, gpu="NVIDIA H200", large=(), **changes):
    """Four all-reduces of `size` bytes after 600 µs of computation, and `large` ones."""
    calls = [talk(600 + us * i, us, dtype="bf16", size=size, **changes) for i in range(4)]
    return job(
        [compute(0, 600), *calls, *large], 600 + 4 * us + sum(one["duration_ns"] for one in large) / 1e3, gpu=gpu
    )


# rule: more healthy ranks
TWINS = {
    "straggler": lambda: simulated.job(2, lambda rank, step, layer: {"host": 1e6}, noise=0.0),  # all are as late
    "exposed-collective": lambda: job([talk(0, 400, dtype="bf16")], 400),  # with nothing to put next to it
    "small-buckets": lambda: _reduced(4 * MiB, 30),  # 17 µs at what the link reaches: half of it is no latency
    "fp32-gradients": lambda: job([compute(0, 600), talk(600, 400, **{"pass": "forward"})], 1000),  # activations
    "no-prefetch": lambda: job([talk(0, 50, "all_gather", "bf16"), compute(300, 200),
                                talk(700, 50, "all_gather", "bf16"), compute(900, 100)], 1000),  # the host is late
    "one-queue": lambda: job([talk(0, 200, dtype="bf16"), compute(0, 900)], 1000),
    "slow-link": lambda: _reduced(8 * MiB, 200),  # latency counts in small messages
}  # fmt: skip


@pytest.mark.parametrize("rule", TWINS)
def test_what_only_looks_like_a_fault_is_none(rule):
    assert set(TWINS) == set(FAULTS)
    assert rule not in found(analyse(TWINS[rule]()))


def test_small_messages_of_links_that_nobody_knows_are_held_against_the_larger_ones():
    """1 MiB in 50 µs is a rate of 21 GB/s: slow where 64 MiB go at 64 GB/s, and all that a slow link reaches."""
    other = "NVIDIA GeForce RTX 3090"
    fast = [talk(800, 1000, dtype="bf16", size=64 * MiB)]
    assert "small-buckets" in found(analyse(_reduced(MiB, 50, other, fast)))
    slow = [talk(800, 4000, dtype="bf16", size=64 * MiB)]
    assert "small-buckets" not in found(analyse(_reduced(MiB, 50, other, slow)))
    alone = analyse(_reduced(MiB, 50, other))
    assert "small-buckets" not in found(alone) and "small-buckets" in [one.rule for one in alone.unjudged]


def test_slow_links_are_held_against_the_roof_of_each_size():
    points = [
        SizeTime(bytes=32 * MiB, seconds=32 * MiB / 100e9, calls=9),
        SizeTime(bytes=512 * MiB, seconds=512 * MiB / 400e9, calls=9),
    ]
    sweep = CollectiveSweep(operation="all_reduce", ranks=2, carrier="nccl", measured_at="", points=points)
    kernels = [
        compute(0, 500),
        talk(500, 671, dtype="bf16", size=32 * MiB),
        talk(1200, 2684, dtype="bf16", size=512 * MiB),
    ]
    one = found(analyse(job(kernels, 4000), roofs=[sweep]))["slow-link"]  # at 50 GB/s of 100, and at 200 of 400
    assert "50 % of what was measured" in one.title and "100.0 GB/s to 400.0 GB/s, by their size" in one.evidence


@pytest.mark.parametrize(
    ("kind", "expected", "late"),
    [
        # Rank 1 waits for 17.9 ms, most of which its host takes anyway: each host launches a bucket every 2.7 ms.
        ("ddp", {"straggler", "exposed-collective", "fp32-gradients"}, 7.2e6),
        # Its gathers are ahead on the rank that waits, and late with its host on the other.
        ("fsdp", {"straggler", "exposed-collective"}, 52.5e6),
    ],
)
def test_real_ranks_have_these_findings_and_no_others(samples, kind, expected, late):
    folder = samples / "kineto" / "ranks"
    ranks = [rank_table.of_table(readers.read(folder / f"{kind}.rank{r}.json.gz")) for r in (0, 1)]
    report = analyse(ranks)
    assert found(report).keys() == expected
    saved = {what.name: what.saves_ns for what in report.what_ifs}
    assert found(report)["exposed-collective"].saving_ns == pytest.approx(saved["perfect overlap"])
    # Rank 1 never comes last. Its kernels take up to 2 ms longer than those of rank 0 while NCCL's kernels wait next to
    # them, which is due to rank 0 as well.
    straggler = found(report)["straggler"]
    assert 0.98 * late < straggler.saving_ns < late + 2.5e6
    assert straggler.saving_ns <= min(straggler.time_ns, saved["equal ranks"]) + 1
    said = page.render_text(ranks_page.page(report))
    assert "What to do next" in said and all(name in said for name in expected)


def test_kernels_of_one_stream_never_overlap_in_these_jobs():
    for planted, healthy, _ in list(FAULTS.values())[1:]:
        for member in (*planted(), *healthy()):
            for stream in (COMPUTE, TALK):
                rows = member.frame[member.frame.stream == stream].sort_values("start_ns")
                ends = (rows.start_ns + rows.duration_ns).to_numpy()
                assert (rows.start_ns.to_numpy()[1:] >= ends[:-1] - 1).all()
