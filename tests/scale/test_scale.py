"""Steps predicted from a run whose times are round numbers, held against schedules worked out by hand."""

import json
from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from perfkit.errors import InputError, UsageError
from perfkit.hardware.collectives.results import OPERATIONS, CollectiveSweep, SizeTime
from perfkit.run_folder import MANIFEST
from perfkit.scale import fsdp, lane, memory, schedule, verdict
from perfkit.scale.links import Link, Network
from perfkit.scale.one_rank import ROOT, StepRow, read_one_rank, unit_of
from perfkit.scale.parameters import Parameter
from perfkit.scale.predict import predict
from perfkit.scale.work import ready, work
from tests.support.scale.model import MB, SIZES, STEP_NS, run_folder


def over(rate):
    """A network without latency: two ranks move S bytes by an all-reduce in S / rate."""
    own = Link("own", rate, 1.0, 0.0, 0.0, 0.0, base_s=0.0)
    return Network(8, own, own)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return read_one_rank(run_folder(tmp_path_factory.mktemp("scale") / "run"))


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    return read_one_rank(run_folder(tmp_path_factory.mktemp("scale") / "run", device="cpu"))


def test_the_step_is_that_of_the_run(one):
    assert sum(row.ns + row.gap for row in one.rows) == pytest.approx(STEP_NS) and len(one.rows) == 9
    assert one.host_ns == pytest.approx(42e6 - 32e6) and one.on_gpu and one.parameter_bytes == 19 * 4 * MB
    assert [unit_of(name, one.rows) for name in SIZES] == [ROOT, 0, 1, ROOT]


def test_gradients_are_ready_at_the_end_of_their_modules_backward(one):
    found = ready(work(one), one.parameters)
    assert {name: round(ns / 1e6) for name, ns in found.items()} == {
        "head.weight": 15, "h.1.fc.weight": 23, "h.0.fc.weight": 31, "emb.weight": 32,
    }  # fmt: skip


def test_ddp_reduces_buckets_while_backward_goes_on(one):
    """The buckets are head (20 MB), the two blocks and the embedding (56 MB): the second one is nowhere covered."""
    copies = 76e6 * 2 / 1e12 * 1e9
    step = schedule.ddp(one, over(10e9), 2, 1.0)
    assert step.added_ns == pytest.approx(copies) and step.message_bytes == 76e6
    assert step.communication_ns == pytest.approx(7.6e6) and step.exposed_ns == pytest.approx(5.6e6)
    assert step.ns == pytest.approx(STEP_NS + copies + 5.6e6)
    slow = schedule.ddp(one, over(1e9), 2, 1.0)
    assert slow.exposed_ns == pytest.approx(56e6 + 15e6 + 20e6 - 32e6 - copies + 40e3, rel=1e-2)


def test_zero1_gathers_parameters_after_half_the_optimizer(one):
    step = schedule.zero1(one, over(10e9), 2, 1.0)
    assert step.compute_ns == pytest.approx(STEP_NS - 4e6) and step.communication_ns == pytest.approx(7.6e6)
    # The last bucket's reduction (of head, blocks, embedding) is exposed, and all gathering.
    assert step.exposed_ns == pytest.approx(2e6 + 3.8e6)


def test_a_compiled_graph_exchanges_nothing_before_its_end_by_zero1(tmp_path):
    made = read_one_rank(run_folder(tmp_path / "run", backend="compile"))
    step = schedule.zero1(made, over(10e9), 2, 1.0)
    assert step.exposed_ns == pytest.approx(7.6e6, rel=0.02)  # except during the copies of the last bucket


def test_fsdp_gathers_the_next_unit_while_one_computes(one, monkeypatch):
    monkeypatch.setattr(fsdp, "UNIT_HOST_NS", 0.0)
    monkeypatch.setattr(fsdp, "PARAMETER_HOST_NS", 0.0)
    step = fsdp.fsdp(one, over(10e9), 2, 1.0)
    # Gathered: the root (60 MB) once, each block (8 MB) twice; reduced: all. Half the bytes pass a link.
    assert step.message_bytes == 60e6 + 4 * 8e6 + 76e6
    assert step.communication_ns == pytest.approx(3e6 + 4 * 0.4e6 + 3.8e6)
    assert step.exposed_ns == pytest.approx(3e6 + 3e6, rel=0.1)  # the root at both ends
    fast = fsdp.fsdp(one, over(1e15), 2, 1.0)
    assert fast.exposed_ns == pytest.approx(0.0, abs=1e3) and fast.compute_ns == pytest.approx(STEP_NS - 4e6)
    slow = fsdp.fsdp(one, over(0.5e9), 2, 1.0)
    assert 0 < slow.communication_ns - slow.exposed_ns < 32e6  # computation overlaps it, the optimizer never does


def test_fsdp_waits_for_a_host_that_is_slower(one):
    step = fsdp.fsdp(one, over(1e15), 2, 1.0)
    assert step.added_ns < 1e6  # 10 ms and 9.4 ms more are less than the step
    late = fsdp.fsdp(replace(one, host_ns=40e6), over(1e15), 2, 1.0)
    assert late.ns == pytest.approx(40e6 + 3 * 3e6 + 4 * 0.1e6)


def test_a_group_of_one_has_the_costs_of_its_way_in_its_step(tmp_path, one):
    """Assumptions for a process alone: 0.152 ms of copies by ddp, 9.4 ms of its host by fsdp."""
    in_way = {way: read_one_rank(run_folder(tmp_path / way, parallel=way)) for way in ("ddp", "fsdp", "zero1")}
    step = schedule.ddp(in_way["ddp"], over(10e9), 2, 1.0)
    assert step.added_ns == 0 and step.exposed_ns == pytest.approx(5.6e6, rel=0.05)
    late = replace(in_way["fsdp"], host_ns=40e6)
    # That of its host, which gathers the root once and each of two blocks twice: the group of one gathered nothing.
    assert fsdp.fsdp(late, over(1e15), 2, 1.0).ns == pytest.approx(40e6 + 5 * 0.6e6, rel=1e-4)
    old = replace(late, manifest=msgspec.structs.replace(late.manifest, environment={"versions": {"torch": "2.8.0"}}))
    assert fsdp.fsdp(old, over(1e15), 2, 1.0).ns == pytest.approx(40e6, rel=1e-4)
    # Gradients that stay in buckets (76 MB) were among the 1 GB already.
    assert memory.peak_bytes(in_way["ddp"], "ddp", 2, 1.0) == pytest.approx(1e9)
    assert memory.peak_bytes(one, "ddp", 2, 1.0) == pytest.approx(1e9 + 76e6)
    assert memory.peak_bytes(in_way["zero1"], "zero1", 2, 1.0) == pytest.approx(1e9 - 1.5 * 76e6)
    report = predict(in_way["ddp"], over(10e9), [2], ["ddp"], ["weak"])
    assert any("What ddp costs a rank itself is as in the run" in said for said in report.assumptions)
    with pytest.raises(UsageError, match="made with --parallel ddp"):
        predict(in_way["ddp"], over(10e9), [2], ["fsdp"])
    tables = read_one_rank(run_folder(tmp_path / "tables", parallel="tables"))
    with pytest.raises(UsageError, match="--parallel tables, which cannot be predicted"):
        predict(tables, over(10e9), [2], ["tables"])


def test_collectives_of_a_group_of_one_are_no_work(tmp_path):
    """Two rows of 1 ms that send nothing are in a step of 40 ms."""
    made = read_one_rank(run_folder(tmp_path / "run", parallel="ddp", sends=("backward", "optimizer")))
    assert len(made.rows) == 9 and sum(row.ns + row.gap for row in made.rows) == pytest.approx(STEP_NS * 40 / 42)


# A GPT of 6 blocks (C = 768, T = 512, V = 50304, head of its own), which two H200 trained: the messages below are those
# of the real traces that tests/ranks reads.
BLOCK = {"ln_1.weight": 768, "ln_1.bias": 768, "qkv.weight": 3 * 768**2, "qkv.bias": 3 * 768, "proj.weight": 768**2,
         "proj.bias": 768, "ln_2.weight": 768, "ln_2.bias": 768, "up.weight": 4 * 768**2, "up.bias": 4 * 768,
         "down.weight": 4 * 768**2, "down.bias": 768}  # fmt: skip
ENDS = {"wte.weight": 50304 * 768, "wpe.weight": 512 * 768}
GPT = ENDS | {f"h.{i}.{name}": size for i in range(6) for name, size in BLOCK.items()}
GPT |= {"ln_f.weight": 768, "ln_f.bias": 768, "head.weight": 50304 * 768}


@pytest.fixture
def messages(monkeypatch):
    """The collectives that a schedule runs, in order."""
    found = []
    run = lane.Lane.run
    monkeypatch.setattr(lane.Lane, "run", lambda self, *given: found.append(given[:2]) or run(self, *given))
    return found


def of_gpt(one, dtype):
    """`one` with the rows and parameters of that model: each module's backward is a row."""
    order = list(dict.fromkeys(name.rpartition(".")[0] for name in GPT))
    units = {module: int(module.split(".")[1]) if module.startswith("h.") else ROOT for module in order}
    rows = [StepRow("forward", units[module], module, 1e5, 0.0) for module in order]
    rows += [StepRow("backward", units[module], module, 1e5, 0.0) for module in reversed(order)]
    manifest = msgspec.structs.replace(
        one.manifest, settings=msgspec.structs.replace(one.manifest.settings, dtype=dtype)
    )
    width = 2 if dtype == "bf16" else 4
    parameters = [Parameter(name, size * width) for name, size in GPT.items()]
    return replace(one, rows=rows, parameters=parameters, manifest=manifest)


def test_ddp_has_the_buckets_of_a_real_run(one, messages):
    schedule.ddp(of_gpt(one, "fp32"), over(1e11), 2, 1.0)
    real = [154533888, 28342272, *[28351488] * 5, 156122112]
    assert {operation for operation, _ in messages} == {"all_reduce"} and len(messages) == len(real)
    for (_, size), expected in zip(messages, real, strict=True):  # a bias comes before its weight or after it
        assert size == pytest.approx(expected, abs=3 * 768 * 4)


def test_fsdp_has_the_messages_of_a_real_run(one, messages):
    fsdp.fsdp(of_gpt(one, "bf16"), over(1e11), 2, 1.0)
    assert Counter(messages) == {
        ("all_gather", 155323392.0): 1, ("all_gather", 14175744.0): 12,
        ("reduce_scatter", 28351488.0): 6, ("reduce_scatter", 310646784.0): 1,
    }  # fmt: skip


def test_on_a_cpu_nothing_is_covered(on_cpu):
    for way in schedule.WAYS.values():
        step = way(on_cpu, over(10e9), 2, 1.0)
        assert step.exposed_ns == step.communication_ns > 7e6


def test_a_share_of_the_batch_shrinks_kernels_not_below_what_the_host_launches(one, on_cpu):
    assert work(one, 0.5).ns == pytest.approx(16e6 + 8e6) and work(on_cpu, 0.125).ns == pytest.approx(4e6 + 8e6)
    assert work(one, 1e-6, 1e-6).ns == pytest.approx(one.host_ns)


def test_memory_of_a_rank(one):
    p = one.parameter_bytes
    rest = 1e9 - 3 * p
    assert memory.peak_bytes(one, "ddp", 8, 1.0) == pytest.approx(4 * p + rest)
    assert memory.peak_bytes(one, "zero1", 4, 1.0) == pytest.approx(2 * p + 3 * p / 4 + rest)
    assert memory.peak_bytes(one, "fsdp", 8, 0.125) == pytest.approx(4 * p / 8 + 2 * 60e6 + rest / 8)


def test_weak_and_strong_scaling(one):
    report = predict(one, over(1e15), [2, 64], ["ddp"])
    weak, far, strong = report.points
    assert [p.scaling for p in report.points] == ["weak", "weak", "strong"] and (far.ranks, far.hosts) == (64, 8)
    assert weak.efficiency == pytest.approx(1.0, abs=0.01) and weak.samples_per_second == pytest.approx(400, rel=0.01)
    assert strong.efficiency == pytest.approx(40 / 24 / 2, rel=0.01) and strong.step_ns == pytest.approx(24e6, rel=0.01)
    assert "64 ranks, which do not divide the batch of 8" in report.problems[0]
    for wrong in ([], [1]):
        with pytest.raises(UsageError, match="of two or more"):
            predict(one, over(1e9), wrong, ["ddp"])
    with pytest.raises(UsageError, match="--parallel tables cannot be predicted"):
        predict(one, over(1e9), [2], ["tables"])


def test_the_headline_names_what_costs_most(one):
    """Host work of 9.4 ms lengthens the step, less the copies that overlap it; communication of 60 ns was named."""
    late = replace(one, host_ns=40e6)
    [host] = verdict.sentences(predict(late, over(1e15), [2], ["fsdp"], ["weak"]))
    assert "81% efficient. 9.06 ms are host work that fsdp is assumed to add, 18% of a step of 49.40 ms. Of " in host
    assert host.endswith("are not covered, 0%.")
    [rest] = verdict.sentences(predict(late, over(1e15), [2], ["ddp"], ["strong"]))
    assert "50% efficient. 20.00 ms are computation that does not shrink with the batch, 50% of a step of" in rest
    [copies] = verdict.sentences(predict(one, over(1e15), [2], ["zero1"], ["weak"]))
    assert "152.0 µs are copies that zero1 adds, 0% of a step of" in copies
    [talk] = verdict.sentences(predict(one, over(10e9), [2], ["ddp"], ["weak"]))
    assert "efficient. Of 7.60 ms of communication 5.60 ms are not covered, 12% of a step of 45.75 ms." in talk


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ranks": 2}, "is a run of 2 ranks"),
        ({"training": False}, "is a run of inference"),
        ({"backend": "thunder"}, "has no timed step and kernel table of thunder. It has: eager."),
    ],
)
def test_a_run_that_cannot_be_predicted_from_says_why(tmp_path, changes, said):
    backend = changes.pop("backend", "")
    with pytest.raises(InputError, match=said):
        read_one_rank(run_folder(tmp_path / "run", **changes), backend)


def test_an_older_run_is_told_by_its_model(tmp_path):
    folder = run_folder(
        tmp_path / "run", sizes={}, workload="gpt2", preset="tiny", variant="explicit", sequence_length=16
    )
    made = read_one_rank(folder)
    assert sum(p.bytes for p in made.parameters) == 4 * 141056
    unknown = run_folder(tmp_path / "unknown", sizes={}, workload="./gone.py")
    with pytest.raises(InputError, match="does not say how large each parameter is"):
        read_one_rank(unknown)


def test_the_command_prints_every_assumption_and_writes_a_page(tmp_path, run_cli):
    points = [SizeTime(bytes=s, seconds=1e-4 + s / 1e10, calls=20) for s in (1e3, 1e9)]
    sweeps = [
        CollectiveSweep(operation=o, ranks=2, carrier="nccl", measured_at="2026-11-23", points=points)
        for o in OPERATIONS
    ]
    folder = run_folder(tmp_path / "run", collectives=sweeps, dtype="bf16")
    shown = run_cli(["scale", folder, "--ranks", "2,8,64", "--parallel", "ddp,fsdp,zero1", "--out", tmp_path / "out"])
    assert shown.rc == 0, shown.stderr
    text = " ".join(shown.stdout.split())
    assert "two blocks on more ranks, predicted from one" in text and "Weak scaling" in text and "Strong" in text
    for assumed in ("measured: nccl between 2 ranks", "InfiniBand NDR", "buckets of 1 MiB", "in fp32", "no straggler",
                    "as fast as alone", "two states a parameter"):  # fmt: skip
        assert assumed in text, assumed
    page = (tmp_path / "out" / "scale.html").read_text()
    assert "efficiency" in page and "What is assumed" in page
    printed = run_cli(["scale", folder, "--ranks", "8", "--parallel", "ddp", "--scaling", "weak", "--json"])
    found = json.loads(printed.stdout)
    assert [p["ranks"] for p in found["points"]] == [8] and found["assumptions"] and found["links"]


def test_a_backend_is_named_behind_the_folder(tmp_path, run_cli):
    folder = run_folder(tmp_path / "run", backend="compile")
    shown = run_cli(["scale", f"{folder}:compile"])
    assert shown.rc == 0 and "compile, fp32" in shown.stdout, shown.stderr
    other = run_cli(["scale", f"{folder}:eager"])
    assert other.rc != 0 and "table of eager. It has: compile." in " ".join(other.stderr.split())
    both = run_cli(["scale", f"{folder}:compile", "--backend", "eager"])
    assert both.rc == 2 and "name two backends" in " ".join(both.stderr.split())


def test_the_command_says_what_costs_most(tmp_path, run_cli):
    shown = run_cli(["scale", run_folder(tmp_path / "run"), "--parallel", "ddp", "--ranks", "2", "--link", "nvlink4"])
    assert "are computation that does not shrink with the batch" in " ".join(shown.stdout.split()), shown.stderr


def test_mistakes_are_sentences(tmp_path, run_cli):
    folder = run_folder(tmp_path / "run")
    for arguments, said in (
        (["--ranks", "2,x"], "'x' is not a whole number"),
        (["--scaling", "odd"], "--scaling odd is not known"),
        (["--link", "wire"], "'wire' is not a kind of link"),
    ):
        done = run_cli(["scale", folder, *arguments])
        assert done.rc == 2 and said in " ".join(done.stderr.split())
    (folder / MANIFEST).unlink()
    assert "is not a run folder" in run_cli(["scale", folder]).stderr
