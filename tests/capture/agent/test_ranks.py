"""A captured job of ranks: the report of its ranks, held against what was planted and what the program measured."""

import sys

import numpy as np

from perfkit.capture.agent.order import Order
from perfkit.capture.program import assemble
from perfkit.cli.parts import rank_groups
from perfkit.readers import read_run
from tests.support.programs.captured import capture, command

LATE_NS = 80e6


def test_a_late_rank_of_torchrun_is_named_with_what_the_other_waits(tmp_path):
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", command("late_rank")[1]]
    found = capture(words, tmp_path, Order(warmup=3, steps=3))
    if b"terminate called" in found.stderr:  # a thread of gloo's may outlive its rank
        found = capture(words, tmp_path / "again", Order(warmup=3, steps=3))
    assert found.code == 0
    folder = tmp_path / "run"
    folder.mkdir()
    assemble(folder, found.results, "program", words, lambda who, what: None)
    job = rank_groups.of(read_run(folder))
    assert job is not None and job.report.detail_rank == 1
    first, second = job.report.parts
    assert [one.rank for one in job.report.stragglers] == [1] and "Python" in job.report.stragglers[0].causes[0].text
    assert 0.8 * LATE_NS < first.waiting_ns < first.step_ns and second.waiting_ns < 0.5 * first.waiting_ns
    measured = np.array([float(line) for line in found.stdout.split()]) * 1e9
    in_backward = measured[4:7].mean()  # three steps warm up, one the profiler
    assert first.waiting_ns + first.exposed_ns < in_backward
    assert in_backward - first.waiting_ns - first.exposed_ns < 0.3 * in_backward
    waits = [gap.time_ns for gap in _accounting(job, 0).gaps if gap.cause == "another rank"]
    assert sum(waits) > 0.9 * first.waiting_ns
    saved = [one.saves_ns for one in job.report.what_ifs] + [one.saving_ns for one in job.report.findings]
    assert max(saved) < job.report.timed_step_ns


def _accounting(job, rank):
    """The accounting of one rank by itself."""
    from perfkit.analysis.report.analyse import analyse

    (backend,) = analyse(rank_groups._only(job.run, job.names[rank])).backends
    return backend.accounting
