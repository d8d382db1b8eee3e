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
        folders = ["--out", str(tmp_path / "out"), "--state", str(tmp_path / "state.json")]
        monkeypatch.setattr(gpu_all, "JOBS", jobs)
        monkeypatch.setattr(sys, "argv", ["gpu_all.py", *folders, *arguments])
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
    assert "none: left out, no-such-program is missing here" in lines
    assert any(line.startswith("long: left for later") for line in lines)
    state = json.loads((tmp_path / "state.json").read_text())
    assert {name: entry["right"] for name, entry in state.items()} == {"good": True, "bad": False}
    assert [line.split()[0] for line in main(jobs, "--budget", "9")[1] if "…" in line] == ["bad"]


def test_a_result_is_kept_with_what_it_was_measured_on_and_shown_as_a_table(main, tmp_path):
    backend = {"name": "llmc", "timed": True, "status": "ok", "step": {"value": 41.2e6, "low": 41e6, "high": 41.5e6},
               "speedup": None, "peak_memory_bytes": 3 * 2**30, "mfu": 0.5, "efficiency": None}  # fmt: skip
    report = tmp_path / "made.json"
    report.write_text(json.dumps({"backends": [backend, {**backend, "name": "eager", "timed": False}]}))
    jobs = [job("run", keep=(str(report),)), job("lines", code="print(*range(300), sep=chr(10))")]
    main(jobs, "--commit", "0123456789")
    state = json.loads((tmp_path / "state.json").read_text())
    assert state["run"]["commit"] == "0123456789" and state["run"]["device"] and "said" not in state["run"]
    assert state["lines"]["said"] == [str(number) for number in range(200, 300)]
    code, lines = main(jobs, "--show")
    assert code == 0 and lines[2].endswith(", 0123456:")
    assert lines[-1] == "| llmc | correct | 41.20 | 41.00–41.50 | – | 3.00 | 50% | – |"
