"""Programs as their authors write them, captured without a change: steps, places, and all else as without perfkit."""

import sys

import pytest

from perfkit.capture.agent.order import Order, ProcessResult
from perfkit.capture.program import multiplied_in, names
from perfkit.run.worker import Worker
from perfkit.run_folder import Settings
from perfkit.table import FLOP_COLUMNS, KernelTable
from tests.support.programs.captured import ENVIRONMENT, HERE, alone, capture, command
from tests.support.steady import steady
from tests.support.sweeps import rest

ONE = "a step is one step of the optimizer"
# Program → what its steps are, forward modules that must be among the places, and the pattern of its layers.
PROGRAMS = {
    "plain": (ONE, {"embed", "blocks.0.up", "head"}, "blocks.*"),
    "accumulation": (ONE, {"0", "2", "4", "CrossEntropyLoss"}, ""),
    "amp": (ONE, {"0", "2"}, ""),
    "gan": ("a step is one round of the 2 optimizers", {"Generator.net.0", "Discriminator.net.2"}, ""),
    "rollout": (ONE, {"Sequential.0", "Sequential_2.0"}, ""),
    "built": (ONE, {"blocks.0", "head"}, "blocks.*"),
    "workers": (ONE, {"0", "2"}, ""),
    "recompiled": (ONE, {"Part0", "Part9"}, ""),
    "generation": (
        "a step is one call of the outermost module, and what follows until the next",
        {"transformer.h.0.attn.c_attn", "lm_head"},
        "transformer.h.*",
    ),
}
OTHERS = [name for name in PROGRAMS if name != "plain"]
HEAVY = {
    "compiled": (ONE, {"0", "2", "3"}, ""),
    "trainer": (ONE, {"transformer.h.1.mlp.c_fc", "lm_head"}, "transformer.h.*"),
    "lit": (ONE, {"0", "2"}, ""),
}
NEEDS = {"trainer": "accelerate", "lit": "lightning"}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def shares(table):
    """Return the shares of the operators' time in steps whose pass, and whose module is known."""
    frame = steady(table.frame[table.frame["step"].notna()])
    total = frame["duration_ns"].sum()
    return [frame["duration_ns"][frame[name].notna()].sum() / total for name in ("pass", "module")]


def untimed(printed):
    """The lines that a program printed but those with its own time, which no two runs share."""
    return [line for line in printed.splitlines() if b"runtime" not in line]


def check(name, expected, tmp_path, fresh=False):
    steps_are, modules, layers = expected
    found = capture(command(name), tmp_path, fresh=fresh)
    (_, result) = found.recorded[0]
    assert len(found.recorded) == 1 and not result.problem
    assert (result.steps_are, result.layers) == (steps_are, layers)
    assert len(result.step_ns) == 2 and len(result.warmup_ns + result.samples_ns) >= 1
    table = found.table()
    assert table.facts["steps"] == 2
    assert modules <= set(table.frame["module"].dropna())
    assert min(shares(table)) > 0.95
    without = alone(command(name), fresh)
    assert untimed(found.stdout) == untimed(without.stdout) and found.stderr == without.stderr
    assert found.code == without.returncode == 0
    return table


@pytest.mark.parametrize(
    ("name", "fresh"),
    [("plain", True), *((name, False) for name in OTHERS), *(rest(name, True) for name in OTHERS)],
)
def test_programs(name, fresh, tmp_path):
    """Most run as forks (tests/support/forks.py). One, and all in `make test-full`, starts an interpreter."""
    table = check(name, PROGRAMS[name], tmp_path, fresh)
    if name == "built":  # the profiler records no list of more than 30 tensors
        fused = table.frame[table.frame["name"].str.startswith("aten::_fused_adamw")]
        elements = 12 * (8 * 8 * 3 + 8 + 8) + 512 * 4 + 4
        assert fused["flop_vector_fp32"].tolist() == [14 * elements] * 2
    passes = set(table.frame["pass"].dropna())
    training = {"forward", "backward", "optimizer"}
    assert passes - {"between", "evaluation", "loading"} == ({"forward"} if name == "generation" else training)


@pytest.mark.full
@pytest.mark.parametrize("name", HEAVY)
def test_heavy_programs(name, tmp_path):
    needed = NEEDS.get(name, "torch")
    pytest.importorskip(needed, reason=f"{needed} is not installed (extra `integrations`)")
    check(name, HEAVY[name], tmp_path, fresh=True)


def test_a_rollout_before_the_training_is_told(tmp_path):
    """Hundreds of calls take 0.1 s: they are not taken for inference, though an optimizer has not stepped yet."""
    ((_, result),) = capture(command("rollout"), tmp_path).recorded
    assert result.training
    (note,) = result.notes
    assert note.startswith(
        "Before its first optimizer step the program called modules 242 times; a step calls them 2 times."
    )


AUTOCAST_INSIDE = """
import torch
model = torch.nn.Linear(64, 64)
inside = model.forward
def forward(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return inside(x)
model.forward = forward
for _ in range(20):
    model(torch.ones(8, 64))
"""


def test_the_precision_is_that_of_the_products(tmp_path):
    """Accelerate's autocast lies within the model: its weights, and the call from outside, are fp32."""
    found = capture([sys.executable, "-c", AUTOCAST_INSIDE], tmp_path)
    assert found.recorded[0][1].dtype == "fp32"
    table = found.table()
    assert multiplied_in(table) == "bf16"
    assert multiplied_in(KernelTable(table.frame.assign(flop_matrix_bf16=float("nan")), table.facts)) == ""


IN_A_THREAD = """
import threading, torch
served, own = torch.nn.Linear(64, 64), torch.nn.Sigmoid()
def serve():
    for _ in range(SERVED):
        served(torch.ones(8, 64))
worker = threading.Thread(target=serve)
worker.start()
worker.join()
for _ in range(OWN):
    own(torch.ones(8))
"""


@pytest.mark.parametrize(("served", "own", "operator"), [(20, 0, "aten::linear"), (2, 20, "aten::sigmoid")])
def test_another_thread_has_the_steps_where_the_first_one_calls_nothing(tmp_path, served, own, operator):
    code = IN_A_THREAD.replace("SERVED", str(served)).replace("OWN", str(own))
    found = capture([sys.executable, "-c", code], tmp_path)
    ((_, result),) = found.recorded
    assert len(result.step_ns) == 2 and operator in set(found.table().frame["operator"])
    assert ["one thread that the program started" in note for note in result.notes] == [True] * (own == 0)


# Rows without a module: the copies between gradients and buckets. Their time differs by run.
REDUCER = {"aten::fill_", "aten::copy_", "torch.distributed.ddp.reducer::copy_bucket_to_grad"}


@pytest.mark.parametrize("compared", [False, rest(True)])
def test_every_rank_of_torchrun_is_recorded(tmp_path, compared):
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", command("ranks")[1]]
    found = capture(words, tmp_path)
    if b"terminate called" in found.stderr:  # a thread of gloo's may outlive its rank: seen once in hundreds of runs
        found = capture(words, tmp_path / "again")
    assert [result.rank for _, result in found.recorded] == [0, 1]
    assert [len(result.step_ns) for _, result in found.recorded] == [2, 2]
    for rank in (0, 1):
        frame = found.table(rank).frame
        steps = frame[frame["step"].notna()]
        assert steps["pass"].notna().all()
        assert set(steps["name"][steps["module"].isna()]) <= REDUCER
    assert found.code == 0
    if compared:
        assert found.stdout == alone(words).stdout


def test_processes_are_called_by_their_rank_where_there_are_several():
    def called(*ranks):
        return names("program", [ProcessResult(rank=rank) for rank in ranks])

    assert called(0) == called(None) == ["program"]
    assert called(0, 1) == ["program-rank0", "program-rank1"]
    assert called(0, 0, None) == ["program-rank0", "program-2", "program-3"]
    assert called(None, None) == ["program", "program-2"]


def test_a_step_has_the_batches_that_it_had(tmp_path):
    """Four accumulated batches and one optimizer step in each."""
    table = capture(command("accumulation"), tmp_path).table()
    frame = table.frame
    losses = frame[(frame["module"] == "CrossEntropyLoss") & (frame["pass"] == "forward")]
    assert losses.groupby("step")["operator"].apply(lambda names: (names == "cross_entropy_loss").sum()).nunique() == 1


def test_the_program_can_be_ended_after_the_recorded_steps(tmp_path):
    found = capture(command("plain"), tmp_path, Order(warmup=2, steps=1, stop=True))
    assert found.code == 0 and len(found.recorded) == 1
    assert len(found.stdout.splitlines()) < 6


@pytest.mark.parametrize(
    ("size", "backend"),
    [
        ("tiny", "eager"),
        pytest.param("tiny", "compile", marks=pytest.mark.full),
        pytest.param("gpt2", "eager", marks=pytest.mark.full),
    ],
)
def test_a_plain_script_has_the_kernels_of_a_run(size, backend, tmp_path, monkeypatch):
    """GPT-2 as a script and as a workload: the same kernels with the same work in the same places."""
    monkeypatch.setenv("PYTHONPATH", str(HERE.parents[2]))
    batch = 4 if size == "tiny" else 1
    options = ["--size", size, "--batch", str(batch), "--steps", "8", *(["--compile"] if backend == "compile" else [])]
    script = capture([*command("gpt2"), *options], tmp_path / "script").table().frame
    settings = Settings(workload="gpt2", preset=size, variant="explicit", batch_size=batch, sequence_length=64)
    worker = Worker(lambda _: None)
    worker.prepare(settings, backend)
    worker.settle(2)
    (tmp_path / "run").mkdir()
    worker.profile(str(tmp_path / "run"), 1)
    run = KernelTable.load(tmp_path / "run" / "kernels.parquet").frame
    ours, theirs = kernels(script[script["step"] == 1]), kernels(run)
    assert len(ours) > 100 and ours == theirs


def kernels(frame):
    """Return the identity of each kernel of a step, as often as it ran; parts of the forward pass that only a workload
    names count as forward, and what makes and moves the batch, which a run does before its step, does not."""
    frame = frame[frame["step"].notna()]
    frame = frame[~((frame["module"] == "(root)") & frame["pass"].isin(["forward"])) & (frame["pass"] != "between")]
    passes = frame["pass"].replace({"encoder": "forward", "classifier": "forward"})
    names = ("name", "shapes", "module", "layer", "operator", "bytes_read", "bytes_written", *FLOP_COLUMNS)
    columns = [frame[name].astype(str) for name in names]
    return sorted(zip(passes.astype(str), *columns, strict=True))
