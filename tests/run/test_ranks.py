"""Runs of several ranks over gloo: what is left in the folder, and what becomes of a wrong, a dying and a late rank."""

import contextlib
import gzip
import json
import os
import random
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perfkit.correctness import FirstSteps
from perfkit.errors import InputError, UsageError
from perfkit.run.ranks import merging
from perfkit.run.ranks.meeting import Meeting
from perfkit.run.session import Session
from perfkit.run_folder import KERNELS, Check, RankRun, Settings, read_manifest
from perfkit.table import KernelTable
from perfkit.workloads import batch_formats, loader
from perfkit.workloads.settings import resolve_settings

SMALL = Path(__file__).parents[1] / "support" / "run" / "small.py"

# Backends that go wrong on several ranks, each in a file of its own.
UNREDUCED = """
from perfkit.backends import AutogradProgram, Backend

class Unreduced(Backend):
    name = "unreduced"
    summary = "every rank steps with the gradients of its own share"

    def prepare(self, workload, model, settings):
        return AutogradProgram(workload, model, model, workload.optimizer(model, settings))
"""
FAULTY = """
import os
from perfkit.backends import Backend
from perfkit.backends.eager import Eager

class Faulty(Backend):
    name = "faulty"
    summary = "one rank fails where the others wait for it"

    def prepare(self, workload, model, settings):
        program = Eager().prepare(workload, model, settings)
        if os.environ["RANK"] == "1":
            program.train_step = fail
        return program

def fail(batches):
    {fault}
"""


def free_ports(count):
    """The first of `count` free ports in a row, below those that the system gives to whoever asks for any port."""
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        first = random.randrange(10_000, max(first_given, 20_000) - count)
        with contextlib.suppress(OSError), contextlib.ExitStack() as taken:
            for port in range(first, first + count):
                taken.enter_context(socket.socket()).bind(("localhost", port))
            return first


def run(out, named, meeting=None, **changes):
    session = Session(asked(**changes), named, out, meeting=meeting)
    session.run()
    return read_manifest(out)


def asked(**changes):
    given = {"workload": str(SMALL), "preset": "one", "batch_size": 32, "steps": 3, "warmup": 1, "ranks": 2}
    return Settings(**{**given, "parallel": "ddp", **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory, run_cli):
    """Eager by DDP, and a backend that does not reduce its gradients, on two hosts that are this machine."""
    out = tmp_path_factory.mktemp("ranks")
    (out / "unreduced.py").write_text(UNREDUCED)
    named = {"eager": "eager", "unreduced": str(out / "unreduced.py")}
    meeting = Meeting("localhost", free_ports(1 + len(named)))
    second = ["run", SMALL, "--preset", "one", "-B", "32", "--steps", "3", "--warmup", "1", "--ranks", "2",
              "--parallel", "ddp", "--backend", ",".join(named.values()), "--nnodes", "2", "--node-rank", "1",
              "--rdzv-endpoint", f"{meeting.host}:{meeting.port}"]  # fmt: skip
    with ThreadPoolExecutor() as pool:
        other = pool.submit(run_cli, second, timeout=200)
        run(out / "run", named, meeting, hosts=2)
        assert other.result().rc == 0
    return out / "run"


def test_a_run_of_two_ranks_is_correct_and_holds_what_each_measured(folder):
    found = read_manifest(folder)
    world, eager = found.world, found.backend("eager")
    assert (world.ranks, world.parallel, world.backend, len(world.hosts)) == (2, "ddp", "gloo", 1)
    assert eager.status == "ok" and eager.correctness.reference == "eager in fp64"
    assert eager.losses == pytest.approx(eager.correctness.reference_losses, rel=1e-5)
    assert {"outputs", "gradient of first.weight", "update of last.bias, step 10"} <= {
        check.name for check in eager.correctness.checks
    }
    assert [rank.rank for rank in eager.ranks] == [0, 1] and all(rank.peak_bytes > 50e6 for rank in eager.ranks)
    slowest = [max(times) for times in zip(*(rank.steps_ns for rank in eager.ranks), strict=True)]
    assert eager.samples_ns == slowest and len(slowest) == 3
    assert eager.peak_memory_bytes == max(rank.peak_bytes for rank in eager.ranks)


def test_every_rank_leaves_a_trace_of_the_same_steps_that_names_it(folder):
    eager = read_manifest(folder).backend("eager")
    for rank in eager.ranks:
        assert rank.trace.startswith(f"rank{rank.rank}.") and rank.trace.endswith(".pt.trace.json.gz")
        trace = json.loads(gzip.decompress((folder / "eager" / rank.trace).read_bytes()))
        assert (trace["distributedInfo"]["rank"], trace["distributedInfo"]["world_size"]) == (rank.rank, 2)
        names = {event["name"] for event in trace["traceEvents"]}
        assert {"perfkit:step:0", "perfkit:step:1", "gloo:all_reduce"} <= names
    assert eager.trace == eager.ranks[0].trace and (folder / "eager" / "kernels.parquet").is_file()


def test_ranks_on_cpus_are_judged_together(folder, run_cli):
    done = run_cli(["report", folder / "eager", "--json"])
    assert done.rc == 0, done.stderr
    found = json.loads(done.stdout)
    assert [part["device"] for part in found["parts"]] == ["cpu", "cpu"]
    (reduced,) = (one for one in found["collectives"] if one["count"] == 1 and one["operation"] == "all_reduce")
    assert reduced["message_bytes"] == 4 * read_manifest(folder).workload.parameters
    for part in found["parts"]:
        told = part["compute_ns"] + part["waiting_ns"] + part["exposed_ns"] + part["copy_ns"] + part["idle_ns"]
        assert part["compute_ns"] > 0 and told == pytest.approx(part["step_ns"], rel=0.01)
    assert f"perfkit report {folder / 'eager'}" in run_cli(["report", folder]).stdout


def test_a_gradient_that_is_not_reduced_is_wrong(folder, run_cli):
    found = read_manifest(folder).backend("unreduced")
    assert found.status == "wrong" and "gradient of" in found.reason
    shown = " ".join(run_cli(["report", folder]).stdout.split())
    assert "2 ranks, ddp over gloo" in shown and "Ranks" in shown and "✗ wrong" in shown


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise ValueError('no way')", "Rank 1: faulty.py, line 17, in fail: ValueError: no way"),
        ("os.kill(os.getpid(), 9)", "The process of rank 1 died with SIGKILL"),
        ("os._exit(3)", "The process of rank 1 ended early with exit code 3"),
    ],
)
def test_a_rank_that_fails_ends_the_others_and_is_named(tmp_path, monkeypatch, fault, said):
    (tmp_path / "faulty.py").write_text(FAULTY.format(fault=fault))
    monkeypatch.chdir(tmp_path)
    found = run(tmp_path / "run", {"faulty": str(tmp_path / "faulty.py")}).backend("faulty")
    assert found.status == "failed" and said in found.reason


@pytest.mark.full
def test_a_rank_that_never_comes_is_not_waited_for_without_end(tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY.format(fault="import time; time.sleep(3600)"))
    command = (
        "from pathlib import Path; from tests.run.test_ranks import run; import sys;"
        "print(run(Path(sys.argv[1]) / 'run', {'faulty': sys.argv[1] + '/faulty.py'}).backend('faulty').reason)"
    )
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", command, str(tmp_path)],
        env={**os.environ, "PERFKIT_RANKS_TIMEOUT": "10"},
        capture_output=True,
        encoding="utf-8",
        timeout=200,
    )
    assert "Rank 0" in done.stdout and "imed" in done.stdout, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize("parallel", ["ddp", "fsdp", "zero1"])
def test_gpt2_is_right_by_every_way_on_every_backend(tmp_path, parallel, run_cli):
    names = ["eager", "compile"] + (["thunder", "thunder-llmc"] if parallel != "zero1" else [])
    done = run_cli(
        ["run", "gpt2", "--preset", "tiny", "--ranks", "2", "--parallel", parallel, "--backend", ",".join(names),
         "--steps", "2", "--out", tmp_path / "run"],
        timeout=600,
    )  # fmt: skip
    assert done.rc == 0, done.stdout + done.stderr
    assert {b.name: b.status for b in read_manifest(tmp_path / "run").backends} == dict.fromkeys(names, "ok")


@pytest.mark.full
@pytest.mark.parametrize("options", [["gpt2", "--preset", "tiny", "--parallel", "ddp"],
                                     ["gpt2", "--preset", "tiny", "--parallel", "zero1"],
                                     ["dlrm", "--preset", "small"]], ids=" ".join)  # fmt: skip
def test_shared_arenas_and_tables_are_right(tmp_path, options, run_cli):
    backend = "llmc" if options[0] == "gpt2" else "eager"
    done = run_cli(
        ["run", *options, "--ranks", "2", "--backend", backend, "--steps", "2", "--out", tmp_path / "run"], timeout=600
    )
    assert done.rc == 0, done.stdout + done.stderr
    assert read_manifest(tmp_path / "run").backend(backend).status == "ok"


def test_a_group_of_one_measures_what_sharing_costs_and_predicts_with_it(tmp_path, run_cli):
    given = ["--parallel", "ddp", "--backend", "eager", "--steps", "2", "--out", tmp_path / "run"]
    done = run_cli(["run", SMALL, *given], timeout=300)
    assert done.rc == 0 and "a group of one rank, ddp over gloo" in " ".join(done.stdout.split()), done.stdout
    world = read_manifest(tmp_path / "run").world
    assert (world.ranks, world.parallel) == (1, "ddp")
    told = run_cli(["scale", tmp_path / "run", "--ranks", "2", "--link", "50GB/s:5us", "--json"])
    found = json.loads(told.stdout)
    assert {point["parallel"] for point in found["points"]} == {"ddp"}
    assert run_cli(["scale", tmp_path / "run", "--parallel", "fsdp", "--link", "50GB/s:5us"]).rc == 2


@pytest.mark.full
def test_every_part_of_a_divided_graph_has_its_own_layers(tmp_path, run_cli):
    """Dynamo divides the graph of nine layers at DDP's buckets; the three parts in the middle have the same calls."""
    done = run_cli(
        ["run", "gpt2", "--preset", "tiny", "--dim", "layers=9", "--dim", "channels=512", "-B", "2", "-T", "32",
         "--parallel", "ddp", "--backend", "compile", "--steps", "2", "--out", tmp_path / "run"],
        timeout=600,
    )  # fmt: skip
    assert done.rc == 0, done.stdout + done.stderr
    frame = KernelTable.load(tmp_path / "run" / "compile" / KERNELS).frame
    frame = frame[(frame["step"] == 0) & (frame["family"] == "matmul") & frame["layer"].notna()].sort_values("start_ns")
    for name, order in (("forward", range(9)), ("backward", reversed(range(9)))):
        layers = frame["layer"][frame["pass"] == name].astype(int)
        assert list(dict.fromkeys(layers)) == list(order)


def test_a_backend_that_cannot_says_so(tmp_path, run_cli):
    done = run_cli(["run", "gpt2", "--ranks", "2", "--parallel", "fsdp", "--backend", "llmc"], cwd=tmp_path)
    assert done.rc == 2
    assert "llmc does not train by fsdp; it can by ddp or zero1." in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hosts": 2}, "--nnodes is for several ranks"),
        ({"ranks": 3}, "3 ranks do not divide the batch of 32 samples"),
        ({"ranks": 2, "parallel": "ddq"}, "Did you mean ddp?"),
        ({"ranks": 0}, "--ranks must be at least 1"),
        ({"ranks": 2, "training": False}, "--ranks 2 belongs to training"),
        ({"parallel": "ddp", "training": False}, "--parallel ddp belongs to training"),
        ({"ranks": 2, "profiler": "ncu"}, "--profiler ncu profiles one process alone"),
        ({"ranks": 3, "hosts": 2, "batch_size": 6}, "2 hosts do not divide 3 ranks"),
    ],
)
def test_what_does_not_go_together_is_said_before_anything_starts(changes, said):
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        resolve_settings(loader.find(str(SMALL)), **changes)


def test_ranks_alone_mean_ddp():
    assert resolve_settings(loader.find(str(SMALL)), ranks=2).parallel == "ddp"


def test_a_share_of_a_batch_is_of_its_samples_alone():
    import torch

    batch = {"x": torch.arange(8).view(4, 2), "scale": torch.ones(3), "pair": (torch.arange(4), "name")}
    second = batch_formats.share(batch, 1, 2, 4)
    assert second["x"].tolist() == [[4, 5], [6, 7]] and second["scale"].shape == (3,)
    assert second["pair"][0].tolist() == [2, 3] and second["pair"][1] == "name"
    with pytest.raises(InputError, match="cannot divide"):
        batch_formats.share(batch, 0, 3, 4)
    with pytest.raises(InputError, match="cannot divide"):
        batch_formats.share(torch.ones(5), 0, 2, 4)


def test_of_several_ranks_the_worst_counts():
    nan = float("nan")
    one = FirstSteps(
        losses=[1.0], errors={"a": 1e-7, "b": None, "c": nan, "d": nan}, parts=[Check("k", 1e-3, 1, None, True)]
    )
    two = FirstSteps(
        losses=[1.0], errors={"a": 2e-7, "b": 1e-7, "c": 3e-7, "d": nan}, parts=[Check("k", 2.0, 1, None, False)]
    )
    first = {"first_step_ns": 1.0, "prepare_ns": 2.0, "warnings": ["w"]}
    found = merging.merged("first_steps", [{**first, "found": one}, {**first, "prepare_ns": 5.0, "found": two}])
    assert found["found"].errors == {"a": 2e-7, "b": None, "c": 3e-7, "d": None}
    assert found["prepare_ns"] == 5.0 and found["warnings"] == ["w"] and not found["found"].parts[0].ok
    assert merging.merged("time", [[1.0, 5.0], [2.0, 3.0]]) == [2.0, 5.0]
    assert merging.merged("paging", [(1.0, None), (2.0, 3.0)]) == (3.0, None)
    assert merging.merged("peak_memory", [(1.0, "peak"), (2.0, "peak")]) == (2.0, "peak, of the rank with most")
    ranks = [RankRun(rank=0), RankRun(rank=1)]
    merging.keep(ranks, "time", [[1.0], [2.0]])
    assert [rank.steps_ns for rank in ranks] == [[1.0], [2.0]]
