"""`benchmarks/gpu_all.py`: jobs that resume, on one GPU or on several at once, with small programs as jobs."""

from __future__ import annotations

import json
import os
import sys

import pytest

from benchmarks import gpu_all
from benchmarks.gpu_all import Job

SAYS = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), len(os.sched_getaffinity(0)))"


def job(name: str, minutes: float = 1, code: str = SAYS, **more) -> Job:
    return Job(name, [sys.executable, "-c", code, "{work}"], minutes, **more)


@pytest.fixture
def main(tmp_path, monkeypatch, capsys):
    """Run the benchmark's command with these jobs: its exit code and the lines it printed."""

    def call(jobs: list[Job], *arguments: str) -> tuple[int, list[str]]:
        monkeypatch.setattr(gpu_all, "JOBS", jobs)
        monkeypatch.setattr(sys, "argv", ["gpu_all.py", "--out", str(tmp_path / "out"), *arguments])
        code = gpu_all.main()
        return code, capsys.readouterr().out.splitlines()

    return call


def test_each_gpu_has_a_job_and_its_share_of_the_cores(main, tmp_path):
    code, lines = main([job("a"), job("b"), job("c")], "--gpus", "0,3")
    assert code == 0 and len(lines) == 6
    said = {name: (tmp_path / "out" / f"{name}.txt").read_text().split() for name in "abc"}
    cores = max(1, len(os.sched_getaffinity(0)) // 2)
    assert {gpu for gpu, _ in said.values()} <= {"0", "3"}
    assert {count for _, count in said.values()} == {str(cores)}


def test_the_longest_begin_first_on_several_gpus_and_in_order_on_one(main):
    jobs = [job("short", 1), job("long", 9), job("middle", 4)]
    began = [line.split()[0] for line in main(jobs, "--gpus", "0,1")[1] if "…" in line]
    assert set(began[:2]) == {"long", "middle"}
    assert [line.split()[0] for line in main(jobs, "--again", "o,m")[1] if "…" in line] == ["short", "long", "middle"]


def test_a_job_waits_for_the_one_that_it_reads(main):
    makes = job("makes", 1, "import sys, time, pathlib; time.sleep(0.5); pathlib.Path(sys.argv[1], 'makes').mkdir()")
    reads = job("reads", 9, "import sys, pathlib; assert pathlib.Path(sys.argv[1], 'makes').is_dir()", after="makes")
    code, lines = main([reads, makes], "--gpus", "0,1")
    assert code == 0 and [line.split()[0] for line in lines] == ["makes", "makes:", "reads", "reads:"]


def test_what_failed_or_was_left_out_is_due_again(main, tmp_path):
    jobs = [job("good"), job("bad", code="raise SystemExit(3)"), job("none", needs="no-such-program"), job("long", 99)]
    code, lines = main(jobs, "--budget", "9")
    assert code == 1
    assert "exit code 3" in next(line for line in lines if line.startswith("bad:"))
    assert "none: left out, there is no no-such-program here" in lines
    assert any(line.startswith("long: left for later") for line in lines)
    state = json.loads((tmp_path / "out" / "state.json").read_text())
    assert {name: entry["right"] for name, entry in state.items()} == {"good": True, "bad": False}
    assert [line.split()[0] for line in main(jobs, "--budget", "9")[1] if "…" in line] == ["bad"]
