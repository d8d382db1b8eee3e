"""Steps of autograd programs that are replayed as CUDA graphs, with graphs as far as a CPU can have them."""

from __future__ import annotations

import msgspec
import pytest
import torch

from perfkit import handwritten, ranges
from perfkit.backends import get, replay
from perfkit.backends.generation import Generation
from perfkit.errors import UsageError
from perfkit.workloads import batch_formats, loader
from perfkit.workloads.settings import resolve_settings
from tests.support.backends.by_hand import far, settings


class Captured:
    """A stand-in graph: a replay computes the captured calls again, into the tensors of the capture."""

    def __init__(self, run, result):
        self.run, self.result, self.replays = run, result, 0

    def replay(self):
        self.replays += 1
        if self.replays == 1:
            return  # here, capturing ran it
        for (_, old), (_, new) in zip(
            batch_formats.tensors(self.result), batch_formats.tensors(self.run()), strict=True
        ):
            old.copy_(new)


def replayed(program, captures=None) -> list[Captured]:
    """Let `program` replay; the graphs that it will have."""
    found: list[Captured] = []

    def capture(run, pool):
        result = run()
        found.append(Captured(run, result))
        return found[-1], result, pool

    program.replay = replay.Replay(
        list(program.model.parameters()), lambda: handwritten.Graphs(captures or capture, ran=True)
    )
    return found


def pair(name, workload, **changes):
    given = settings(workload, **changes)
    plain, other = (get(name).prepare(workload, workload.build(given), given) for _ in range(2))
    return given, plain, other


def same(a, b):
    assert set(a) == set(b)
    assert max(far(a[name], b[name]) for name in a) < 1e-6


@pytest.fixture(scope="module")
def gpt2():
    return loader.find("gpt2")


@pytest.mark.parametrize(("backend", "accumulation"), [("eager", 1), ("eager", 3), ("thunder-llmc", 2)])
def test_a_replayed_step_is_the_step(gpt2, backend, accumulation):
    """Graphs hold no batch and no gradient of an earlier step; the first batch of several adds to nothing."""
    given, plain, other = pair(backend, gpt2, grad_accumulation=accumulation, dimensions={"layers": "1"})
    graphs = replayed(other)
    for step in range(5):
        data = [gpt2.batch(given, accumulation * step + i) for i in range(accumulation)]
        (expected, expected_loss), (outputs, loss) = plain.train_step(data), other.train_step(data)
        assert far(outputs, expected) < 1e-6
        assert float(loss) == pytest.approx(float(expected_loss), rel=1e-6)
        same(other.gradients(), plain.gradients())
        same(other.parameters(), plain.parameters())
    assert [g.replays for g in graphs] == ([4] if accumulation == 1 else [4, 4 * (accumulation - 1)])
    assert [text for text in other.warnings() if text not in plain.warnings()] == [replay.REPLAYS]
    assert other.replayed and not plain.replayed


def test_results_are_kept_apart_where_somebody_wants_them(gpt2):
    given, _, other = pair("eager", gpt2)
    replayed(other)
    results = [other.train_step([gpt2.batch(given, step)]) for step in range(4)]
    kept = [(outputs.clone(), loss.clone()) for outputs, loss in results]
    other.train_step([gpt2.batch(given, 9)])
    for (outputs, loss), (was, lost) in zip(results, kept, strict=True):
        assert torch.equal(outputs, was)
        assert torch.equal(loss, lost)
    other.outputs_wanted = False
    first, _ = other.train_step([gpt2.batch(given, 4)])
    second, _ = other.train_step([gpt2.batch(given, 5)])
    assert first is second, "no copy where nobody looks"


def test_inference(gpt2):
    given, plain, other = pair("eager", gpt2, training=False)
    graphs = replayed(other)
    for step in range(3):
        batch = gpt2.batch(given, step)
        assert far(other.forward(batch)[0], plain.forward(batch)[0]) < 1e-6
    assert [g.replays for g in graphs] == [2]


def test_nothing_is_replayed_while_somebody_listens(gpt2, monkeypatch):
    """The gradients of a step that is not replayed are its own, also between steps that are."""
    given, plain, other = pair("eager", gpt2)
    graphs = replayed(other)
    for step, listens in enumerate([False, False, True, True, False]):
        monkeypatch.setattr(ranges, "listening", lambda listens=listens: listens)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1e9, 2e9))
        data = [gpt2.batch(given, step)]
        plain.train_step(data), other.train_step(data)
        same(other.gradients(), plain.gradients())
        same(other.parameters(), plain.parameters())
    assert [g.replays for g in graphs] == [2]


def test_graphs_that_leave_no_room_are_made_anew(gpt2, monkeypatch):
    given, plain, other = pair("eager", gpt2)
    graphs = replayed(other)
    monkeypatch.setattr(handwritten.Graphs, "held", 1e9)
    for step, (listens, free) in enumerate(
        [(False, 9e9), (False, 9e9), (True, 9e9), (False, 9e9), (True, 1e8), (False, 9e9)]
    ):
        monkeypatch.setattr(ranges, "listening", lambda listens=listens: listens)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda free=free: (free, 1e10))
        data = [gpt2.batch(given, step)]
        plain.train_step(data), other.train_step(data)
        same(other.parameters(), plain.parameters())
    assert [g.replays for g in graphs] == [2, 1]


def test_batches_of_another_form_run_as_they_are(gpt2):
    given, plain, other = pair("eager", gpt2)
    graphs = replayed(other)
    short = msgspec.structs.replace(given, sequence_length=3)
    for step, form in enumerate([given, given, short, short, given]):
        data = [gpt2.batch(form, step)]
        plain.train_step(data), other.train_step(data)
        same(other.parameters(), plain.parameters())
    assert [g.replays for g in graphs] == [2]


def test_what_cannot_be_captured_runs_on_without(gpt2):
    given, plain, other = pair("eager", gpt2, grad_accumulation=2)
    tries = []

    def capture(run, pool):
        tries.append(run())
        if len(tries) < 2:
            return Captured(run, tries[-1]), tries[-1], pool
        try:
            raise RuntimeError("operation not permitted when stream is capturing\nCompile with TORCH_USE_CUDA_DSA")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    replayed(other, capture)
    for step in range(4):
        data = [gpt2.batch(given, 2 * step + i) for i in range(2)]
        plain.train_step(data), other.train_step(data)
        same(other.gradients(), plain.gradients())
        same(other.parameters(), plain.parameters())
    assert len(tries) == 2
    assert other.warnings() == [
        "The step could not be captured as CUDA graphs, and runs without: operation not permitted when stream is "
        "capturing."
    ]


@pytest.mark.parametrize(
    ("usual", "asked", "expected"),
    [(True, "default", True), (False, "default", False), (None, "default", False),
     (True, "all", True), (False, "all", True), (None, "all", False), (True, "none", False)],
)  # fmt: skip
def test_who_replays(gpt2, usual, asked, expected):
    on_a_gpu = msgspec.structs.replace(settings(gpt2), device="cuda", cuda_graphs=asked)
    assert replay.asked(on_a_gpu, usual) is expected
    for change in ({"device": "cpu"}, {"ranks": 2}):
        assert not replay.asked(msgspec.structs.replace(on_a_gpu, **change), usual)


def test_of_the_backends(gpt2):
    from perfkit.backends.catalog import CatalogProgram
    from perfkit.backends.compile import CompiledProgram
    from perfkit.backends.interface import AutogradProgram
    from perfkit.backends.thunder.llmc import LlmcProgram

    assert [p.replays for p in (AutogradProgram, CompiledProgram, LlmcProgram)] == [False, None, True]
    programs = AutogradProgram, CompiledProgram, LlmcProgram, CatalogProgram
    assert [p.replays_passes for p in programs] == [False, None, True, True]


# ---- passes of a step that generates ------------------------------------------------------------------------------


def generating(backend, captures):
    """A program that generates tokens and replays its passes, the settings, and the same without replays."""
    llama = loader.find("llama")
    size = {"preset": "tiny", "batch_size": 2, "sequence_length": 6, "generate": 5, "training": False}
    given = msgspec.structs.replace(resolve_settings(llama, **size), cuda_graphs="all")
    made = []
    for _ in range(2):
        program = get(backend).prepare(llama, llama.build(given), given)
        program.generation = Generation(llama, program.model, given)
        made.append(program)
    made[0].replay_where_asked(msgspec.structs.replace(given, device="cuda"))
    for one in made[0].passes:
        one._make = lambda: handwritten.Graphs(captures, ran=True)
    return llama, given, *made


@pytest.mark.parametrize("backend", ["eager", "kernels", "llmc"])
def test_replayed_passes_make_the_same_tokens(backend):
    """Also for other prompts, and with given tokens to follow."""
    graphs: list[Captured] = []

    def capture(run, pool):
        graphs.append(Captured(run, run()))
        return graphs[-1], graphs[-1].result, pool

    llama, given, program, plain = generating(backend, capture)
    for step in range(3):
        batch = llama.batch(given, step)
        assert torch.equal(program.forward(batch)[0], plain.forward(batch)[0])
    assert [g.replays for g in graphs] == [4 + 4 + 3, 2]  # decode's first pass runs as it is, prefill's as well
    for one in (program, plain):
        one.generation.follow = torch.arange(10).view(2, 5)
    assert far(program.forward(batch)[0], plain.forward(batch)[0]) < 1e-6
    assert program.warnings()[-1] == replay.PASSES and program.replayed


def test_passes_that_cannot_be_captured_run_without(monkeypatch):
    def refuse(run, pool):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    llama, given, program, plain = generating("eager", refuse)
    for step in range(3):
        batch = llama.batch(given, step)
        assert torch.equal(program.forward(batch)[0], plain.forward(batch)[0])
    assert program.warnings() == [
        "A pass could not be captured as a CUDA graph, and runs without: operation not permitted when stream is "
        "capturing."
    ]


def test_no_pass_is_replayed_while_somebody_listens(monkeypatch):
    monkeypatch.setattr(ranges, "listening", lambda: True)
    llama, given, program, _ = generating("kernels", None)
    for step in range(3):
        program.forward(llama.batch(given, step))
    assert program.warnings() == [] and not program.replayed


def test_a_workloads_own_step_is_not_captured(gpt2):
    given, _, program = pair("eager", gpt2)
    on_a_gpu = msgspec.structs.replace(given, device="cuda", cuda_graphs="all")
    program.workload = type("Own", (), {"has": lambda self, what: what == "step"})()
    program.replay_where_asked(on_a_gpu)
    assert program.replay is None


def test_the_option(gpt2):
    with pytest.raises(UsageError, match="needs a GPU"):
        resolve_settings(gpt2, cuda_graphs="all", device="cpu")
    with pytest.raises(UsageError, match="--cuda-graphs is one of default, all, none; not 'some'"):
        resolve_settings(gpt2, cuda_graphs="some", device="cpu")
