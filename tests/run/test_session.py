"""Whole runs of a small workload: what is left in the folder, what a fault or an interruption makes of it."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import msgspec
import pytest

from perfkit.errors import OutOfMemory, RunFailed, UsageError
from perfkit.run.backends import RunningBackend, together
from perfkit.run.child import Child
from perfkit.run.session import Session
from perfkit.run.stages.timing import shares
from perfkit.run_folder import TIMED_APART, BackendRun, Settings, read_manifest
from perfkit.table import KernelTable
from tests.support.interrupts import hear_interrupts

SMALL = Path(__file__).parents[1] / "support" / "run" / "small.py"
ROOT = Path(__file__).parents[2]
OTHER = "kernels"  # a backend along with eager


def settings(**changes):
    given = {"workload": str(SMALL), "preset": "one", "batch_size": 32, "steps": 6, "warmup": 1, **changes}
    return Settings(**given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One good run of eager."""
    out = tmp_path_factory.mktemp("runs") / "good"
    Session(settings(), {"eager": "eager"}, out).run()
    return out


def test_the_manifest_holds_samples_losses_and_a_verdict(folder):
    run = read_manifest(folder)
    eager = run.backend("eager")
    assert run.complete and eager.status == "ok" and eager.timed
    assert len(eager.samples_ns) == 6 and min(eager.samples_ns) > 0
    assert len(eager.warmup_ns) == 1
    assert len(eager.losses) == 10 and eager.losses == pytest.approx(eager.correctness.reference_losses, rel=1e-5)
    assert eager.correctness.reference == "eager in fp64"
    names = {c.name for c in eager.correctness.checks}
    assert {"outputs", "loss", "gradient of first.weight", "gradient of last.bias"} <= names
    assert {"update of first.weight, step 1", "update of last.bias, step 10"} <= names
    assert eager.peak_memory_bytes > 50e6
    assert run.workload.parameters == 64 * 64 + 64 + 64 * 4 + 4
    assert run.environment and run.fingerprint


def test_the_folder_holds_trace_table_and_ceilings_and_nothing_unfinished(folder):
    eager = read_manifest(folder).backend("eager")
    trace = json.loads(gzip.decompress((folder / "eager" / eager.trace).read_bytes()))
    assert any(e["name"] == "perfkit:pass:backward" for e in trace["traceEvents"])
    table = KernelTable.load(folder / "eager" / "kernels.parquet")
    assert {"forward", "classifier", "backward", "optimizer"} <= set(table.frame["pass"].dropna())
    assert json.loads((folder / "ceilings.json").read_text())
    assert not [p for p in folder.parent.rglob("*") if ".partial" in p.name or ".scratch" in p.name or ".tmp" in p.name]


def test_inference_has_no_losses_and_no_gradients(tmp_path):
    Session(settings(training=False), {"eager": "eager"}, tmp_path / "run").run()
    eager = read_manifest(tmp_path / "run").backend("eager")
    assert eager.status == "ok" and eager.losses == []
    assert [c.name for c in eager.correctness.checks] == ["outputs"]


def test_gradient_accumulation_averages_over_its_batches(tmp_path):
    Session(settings(grad_accumulation=3, profiler="none"), {"eager": "eager"}, tmp_path / "run").run()
    run = read_manifest(tmp_path / "run")
    assert run.backend("eager").status == "ok"
    assert run.backend("eager").trace == ""
    assert run.workload.samples_per_step == 96


def test_eager_runs_as_the_reference_though_not_named_and_is_not_timed(tmp_path):
    Session(settings(profiler="none"), {}, tmp_path / "run", {"compile": "no compiler"}).run()
    eager = read_manifest(tmp_path / "run").backend("eager")
    assert eager.correctness.ok and not eager.timed and eager.samples_ns == []


def test_a_killed_backend_is_a_failure_with_its_cause(tmp_path, monkeypatch):
    monkeypatch.setenv("SMALL_DIES", "1")
    with pytest.raises(RunFailed, match="died with SIGKILL"):
        Session(settings(), {"eager": "eager"}, tmp_path / "run").run()
    assert list(tmp_path.iterdir()) == []


def test_an_exception_in_the_model_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("SMALL_RAISES", "1")
    with pytest.raises(RunFailed, match=r"ValueError: the second layer"):
        Session(settings(), {"eager": "eager"}, tmp_path / "run").run()


def test_a_run_whose_profile_is_unusable_keeps_its_timings_and_exits_with_1(run_cli, tmp_path):
    """The marks of the recorded steps are missing."""
    options = ["--batch-size", "32", "--steps", "4", "--warmup", "1", "--device", "cpu", "--backend", "eager"]
    run = run_cli(["run", SMALL, *options, "--out", tmp_path / "run"], env={"SMALL_UNMARKED": "1"})
    why = "2 of the 2 recorded steps are missing. Capture it again."
    assert run.rc == 1 and f"perfkit: eager's profile is unusable: {why}" in run.stderr, run.stderr
    eager = read_manifest(tmp_path / "run").backend("eager")
    assert eager.status == "ok" and len(eager.samples_ns) == 4 and eager.unusable == why and eager.trace
    assert not (tmp_path / "run" / "eager" / "kernels.parquet").exists()

    report = run_cli(["report", tmp_path / "run"])
    assert report.rc == 1 and f"perfkit: eager's profile is unusable: {why}" in report.stderr
    for text in (run.stdout, report.stdout):
        said = " ".join(text.split())
        assert f"eager's profile is unusable: {why} Its timings stand." in said and "A step takes" in said
        assert "Trace checks: 3 of 4 hold; not: steps (2 of the 2 recorded steps are missing)" in said
        assert "No kernel runs" not in said and "Kernels by time" not in said and "What to do next" not in said
    told = json.loads(run_cli(["report", tmp_path / "run", "--json"]).stdout)["backends"][0]
    assert (
        told["unusable"] == why
        and len(told["samples_ns"]) == 4
        and told["accounting"] is None
        and told["kernels"] == []
    )
    assert [check["name"] for check in told["trace_checks"] if check["holds"] is False] == ["steps"]
    compared = run_cli(["compare", tmp_path / "run", tmp_path / "run"])
    assert compared.rc == 1 and f"profile of run (1) is unusable: {why}" in " ".join(compared.stdout.split())


def test_a_run_is_not_replaced_unless_asked(folder, tmp_path):
    before = (folder / "run.json").read_bytes()
    with pytest.raises(UsageError, match="holds a run already"):
        Session(settings(), {"eager": "eager"}, folder).run()
    assert (folder / "run.json").read_bytes() == before
    other = tmp_path / "notes"
    other.mkdir()
    (other / "diary.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not a run folder"):
        Session(settings(), {"eager": "eager"}, other, overwrite=True).run()
    assert (other / "diary.txt").read_text() == "mine"


def test_ctrl_c_leaves_what_existed_and_nothing_else(folder, tmp_path):
    out = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "perfkit", "run", str(SMALL), "--steps", "100000", "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_interrupts,
    )
    partial = tmp_path / ".run.partial" / "eager" / "log.txt"
    deadline = time.monotonic() + 120
    while not partial.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.splitlines()[-1].startswith("perfkit: Interrupted")
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    code = f"{limit}; import sys; from perfkit.cli import main; main(sys.argv[1:])"
    process = subprocess.run(
        [sys.executable, "-c", code, "run", str(SMALL), "--out", str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert process.stderr.splitlines()[-1].startswith("perfkit: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("total", "parts", "expected"), [(5, 4, [2, 1, 1, 1]), (10, 4, [3, 3, 2, 2]), (1, 1, [1])])
def test_steps_are_shared_evenly_over_rounds(total, parts, expected):
    assert shares(total, parts) == expected


TWIN = """
import os
from pathlib import Path

from perfkit.backends.eager import Eager


class Twin(Eager):
    name = "twin"
    summary = "eager, which finds no memory at the first try"

    def prepare(self, workload, model, settings):
        tried, left = Path(os.environ["TWIN_TRIED"]), int(os.environ["TWIN_GOOD_STEPS"])
        if tried.exists():
            return super().prepare(workload, model, settings)
        tried.touch()

        def count(*_):
            nonlocal left
            left -= 1
            if left < 0:
                raise RuntimeError("CUDA error: out of memory")

        model.register_forward_pre_hook(count)
        return super().prepare(workload, model, settings)
"""


@pytest.mark.parametrize("good_steps", [0, 11], ids=["in its first step", "while it is timed"])
def test_a_backend_that_finds_no_memory_beside_the_others_is_tried_again_alone(tmp_path, monkeypatch, good_steps):
    monkeypatch.setenv("TWIN_TRIED", str(tmp_path / "tried"))
    monkeypatch.setenv("TWIN_GOOD_STEPS", str(good_steps))
    (tmp_path / "twin.py").write_text(TWIN)

    Session(settings(profiler="none"), {"eager": "eager", "twin": str(tmp_path / "twin.py")}, tmp_path / "run").run()

    twin = read_manifest(tmp_path / "run").backend("twin")
    assert twin.status == "ok" and len(twin.samples_ns) == 6
    assert any("timed apart" in warning for warning in twin.warnings)


@pytest.mark.parametrize(
    ("device", "share", "waves"),
    [
        ("cpu", 1.0, [["eager"], ["a"], ["b"]]),
        ("cuda", 0.3, [["eager"], ["a", "b"]]),
        ("cuda", 0.1, [["eager", "a", "b"]]),
    ],
)
def test_backends_prepare_together_beside_a_gpu_and_one_by_one_on_a_cpu(tmp_path, device, share, waves):
    session = Session(settings(device=device), {"a": "a", "b": "b"}, tmp_path / "run")
    members = [SimpleNamespace(name=name) for name in ("eager", "a", "b")]
    assert [[m.name for m in wave] for wave in session._waves(members, share)] == waves


def test_a_reference_too_large_in_fp64_runs_in_fp32(tmp_path, monkeypatch):
    monkeypatch.setenv("SMALL_LARGE_IN_FP64", "1")
    told = []
    session = Session(
        settings(profiler="none"), {"eager": "eager"}, tmp_path / "run", progress=lambda *said: told.append(said)
    )
    session.run()
    eager = read_manifest(tmp_path / "run").backend("eager")
    assert eager.status == "ok" and eager.correctness.reference == "eager in fp32"
    assert ("reference", "too large in fp64: again in fp32") in told


class Recorded(Child):
    """A worker process on the CPU that notes what it is asked for, as one on a GPU, of which it takes `share`."""

    told: ClassVar[list[tuple[str, str]]] = []
    share: ClassVar[float] = 0.3

    def call(self, command, **arguments):
        found = super().call(command, **arguments)
        return self.share if command == "memory_share" else found

    def begin(self, command, **arguments):
        self.told.append((self.name, command))
        if command in ("prepare", "load"):
            arguments["settings"] = msgspec.structs.replace(arguments["settings"], device="cpu")
        super().begin(command, **arguments)

    def close(self):
        self.told.append((self.name, "close"))
        super().close()


@pytest.fixture
def beside_a_gpu(monkeypatch):
    """Return a function that runs backends as on a GPU of which each takes a `share`: the run and its messages."""
    from perfkit.run import session as module

    monkeypatch.setattr(Recorded, "told", [])
    monkeypatch.setattr(
        module, "processes", lambda name, _, log, environment, say, *__: Recorded(name, log, environment, say)
    )
    ceilings = module.store.load_or_measure("cpu")
    monkeypatch.setattr(module.store, "load_or_measure", lambda device, progress, threads: ceilings)

    def run(out, backends, share=0.3, available=1e12):
        monkeypatch.setattr(Recorded, "share", share)
        monkeypatch.setattr(module.memory, "available_bytes", lambda: available)
        given = msgspec.structs.replace(settings(profiler="none"), device="cuda")
        Session(given, {name: name for name in backends}, out).run()
        return read_manifest(out), Recorded.told

    return run


@pytest.mark.parametrize("memory", ["roomy", "scarce"])
def test_beside_a_gpu_processes_load_while_the_reference_runs(tmp_path, beside_a_gpu, memory):
    """With memory for only one at a time, started ones are ended until it is their turn."""
    available = 1e12 if memory == "roomy" else 1e9
    run, told = beside_a_gpu(tmp_path / "run", ["eager", OTHER], available=available)
    assert [(b.name, b.status, len(b.samples_ns)) for b in run.backends] == [("eager", "ok", 6), (OTHER, "ok", 6)]
    assert told[:3] == [("eager", "load"), (OTHER, "load"), ("reference", "prepare")]
    loads = [told.index((name, "load")) for name in ("eager", OTHER)]
    prepares = [told.index((name, "prepare")) for name in ("eager", OTHER)]
    closes = [told.index((name, "close")) for name in ("eager", OTHER)]
    if memory == "roomy":
        assert max(loads) < min(prepares) < max(prepares) < min(closes)
    else:
        assert max(loads) < max(closes) < min(prepares), "no process waits in memory that another one needs"


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_the_others_go_one_by_one_where_eager_takes_most_of_a_gpu(tmp_path, beside_a_gpu, share, timed):
    run, told = beside_a_gpu(tmp_path / "run", ["eager", OTHER] if timed else [OTHER], share=share)
    other = run.backend(OTHER)
    assert other.status == "ok" and len(other.samples_ns) == 6
    assert (TIMED_APART in other.warnings) == (share > 0.5)
    assert told.count((OTHER, "prepare")) == 1, "nothing is prepared in vain"
    eager_goes, other_begins = told.index(("eager", "close")), told.index((OTHER, "prepare"))
    assert (eager_goes < other_begins) == (share > 0.5 or not timed)


def test_members_of_a_wave_work_at_the_same_time_and_a_failure_is_one_members_own(tmp_path):
    told = []

    class Told:
        def __init__(self, name):
            self.name = name

        def begin(self, command, **arguments):
            told.append((self.name, command))

        def result(self):
            if self.name == "b":
                raise OutOfMemory("no memory")
            return self.name

        def close(self):
            told.append((self.name, "closed"))

    members = [RunningBackend(BackendRun(name=name), tmp_path, Told(name)) for name in "abc"]
    kept = []
    together(members, "prepare", lambda m: {}, lambda m, result: kept.append(result))
    together(members, "first_steps", lambda m: {}, lambda m, result: kept.append(result))
    assert told == [(n, "prepare") for n in "abc"] + [("b", "closed")] + [(n, "first_steps") for n in "ac"]
    assert kept == ["a", "c", "a", "c"] and members[1].crowded and members[1].record.status == "failed"
