"""Programs that end otherwise than by taking all their steps: each ends as without perfkit, and it is said why."""

import json
import signal
import sys

import pytest
import torch

from perfkit import cli
from perfkit.capture.agent.models import conditions
from perfkit.capture.agent.order import Order
from perfkit.run_folder import read_manifest
from tests.support.programs.captured import ENVIRONMENT, alone, capture
from tests.support.sweeps import rest

TRAIN = """
import os, signal, sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(count):
    for _ in range(count):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
END = "print(model[0].weight.sum().item())\n"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def run(code, tmp_path, order=None, fresh=False):
    """The program under capture and alone, which must have printed the same and ended alike."""
    words = [sys.executable, "-c", TRAIN + code]
    found, without = capture(words, tmp_path, order, fresh), alone(words, fresh)
    expected = without.returncode if without.returncode >= 0 else 128 - without.returncode
    assert (found.stdout, found.code) == (without.stdout, expected)
    return found, without


@pytest.mark.parametrize("fresh", [False, rest(True)])
@pytest.mark.parametrize(
    ("code", "steps"),
    [
        ("train(20); print('before', flush=True); sys.exit(3)", 2),
        ("train(20)\n" + END + "raise ValueError('no luck')", 2),
        ("train(5)\n" + END + "os.kill(os.getpid(), signal.SIGINT)", 1),
    ],
    ids=["exit-code", "exception-after", "interrupted-while-recording"],
)
def test_what_was_recorded_is_kept(tmp_path, code, steps, fresh):
    found, without = run(code, tmp_path, fresh=fresh)
    assert found.stderr == without.stderr
    assert len(found.recorded[0][1].step_ns) == steps
    assert found.table().facts["steps"] == steps


def test_a_child_that_is_forked_before_any_step_is_recorded(tmp_path):
    """Of os.fork and of multiprocessing, which ends by os._exit."""
    fork = (
        "child = os.fork()\nif not child:\n    train(30)\n    sys.exit(0)\nos.waitpid(child, 0)\n"
        "import multiprocessing\nworker = multiprocessing.get_context('fork').Process(target=train, args=(4,))\n"
        "worker.start(); worker.join(); print(worker.exitcode)\n"
    )
    found, _ = run(fork + END, tmp_path)
    results = {result.pid: result for _, result in found.results}
    assert len(results) == 3 and [len(one[1].step_ns) for one in found.recorded] == [2]
    (few,) = [result.problem for result in results.values() if result.found and not result.recorded]
    assert "4 steps" in few


def test_a_child_that_is_forked_after_steps_is_not_recorded(tmp_path):
    fork = "train(2)\nchild = os.fork()\ntrain(30 if child == 0 else 10)\nif child: os.waitpid(child, 0)\n"
    found, _ = run(fork + END, tmp_path)
    assert len(found.results) == 1 and len(found.recorded[0][1].step_ns) == 2


def test_a_profiler_of_the_programs_own_goes_first(tmp_path):
    own = """
train(4)
with torch.profiler.profile() as p:
    train(3)
print(sum(e.count for e in p.key_averages() if e.key == "aten::addmm"))
train(8)
"""
    found, _ = run(own + END, tmp_path)
    assert found.stdout.startswith(b"3\n")
    assert len(found.recorded[0][1].step_ns) == 2 and found.table().facts["steps"] == 2


def test_too_few_steps(tmp_path):
    found, without = run("train(4)\n" + END, tmp_path)
    assert not found.recorded and found.stderr == without.stderr
    assert "took 4 steps, and 6 are needed" in found.results[0][1].problem


def test_a_full_disk(tmp_path):
    """A limit on the size of files simulates it: the trace cannot be written, the rest of the program runs."""
    full = "import resource; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    full += "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\ntrain(20)\n"
    found, _ = run(full + END, tmp_path)
    assert not found.recorded


def test_after_some_seconds(tmp_path):
    """Earlier ones do not count: three of the others warm up, one warms the profiler up, two are recorded."""
    found, _ = run("import time\ntrain(8)\ntime.sleep(3.1)\ntrain(8)\n" + END, tmp_path, Order(3, 2, after=3.0))
    assert found.recorded[0][1].found == 6


@pytest.mark.parametrize(
    ("program", "part"),
    [
        ("-c print('hello')", "no Python process of this program imported torch"),
        ("-I -c import torch; print('hello')", "-I, -E and -S"),
        ("-c import torch; print('hello')", "took no step"),
    ],
)
def test_a_program_without_steps_is_explained(tmp_path, monkeypatch, capfd, program, part):
    monkeypatch.chdir(tmp_path)
    options, _, code = program.partition("-c ")
    code = cli._run(["capture", "--out", "runs/x", "--", sys.executable, *options.split(), "-c", code])
    out, err = capfd.readouterr()
    assert (code, out) == (1, "hello\n")
    assert "perfkit: Nothing was recorded" in err and part in err and ("--whole" in err) == (part == "took no step")
    assert not (tmp_path / "runs" / "x").exists()


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", rest("os._exit(9)")])
def test_a_program_that_ends_without_pythons_exit_is_explained(tmp_path, monkeypatch, capfd, end):
    """By the out-of-memory killer, a job's time limit, or its own will: it did import torch."""
    monkeypatch.chdir(tmp_path)
    words = [sys.executable, "-c", f"{TRAIN}\ntrain(4)\n{end}"]
    assert cli._run(["capture", "--out", "x", "--", *words]) == (9 if "_exit" in end else 128 + 9)
    assert "was ended by a signal, or by os._exit" in capfd.readouterr().err


def test_the_exit_code_is_the_programs(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert cli._run(["capture", "--out", "x", "--", sys.executable, "-c", "raise SystemExit(7)"]) == 7
    assert cli._run(["capture", "--out", "x", "--", "sh", "-c", f"kill -{signal.SIGKILL:d} $$"]) == 128 + 9
    capfd.readouterr()


def test_the_rank_is_that_of_the_process_group(monkeypatch):
    """torch.multiprocessing starts ranks without torchrun's variables."""
    monkeypatch.delenv("RANK", raising=False)
    assert conditions.rank() is None
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        assert conditions.rank() == 0
    finally:
        torch.distributed.destroy_process_group()
    monkeypatch.setenv("RANK", "3")
    assert conditions.rank() == 3


def test_a_programs_own_number_of_threads_is_what_its_report_is_about(tmp_path, monkeypatch):
    """perfkit has more; its ceilings are those of one thread."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    code = TRAIN + "\ntorch.set_num_threads(1)\ntrain(8)\n"
    assert cli._run(["capture", "--warmup", "2", "--steps", "2", "--out", "x", "--", sys.executable, "-c", code]) == 0
    manifest = read_manifest(tmp_path / "x")
    assert manifest.environment["threads"]["count"] == manifest.environment["threads"]["processes"] == 1
    assert json.loads((tmp_path / "x" / "ceilings.json").read_text())["threads"] == 1
