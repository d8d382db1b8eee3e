"""GPU features of a handwritten step, tested on a CPU: queries in blocks, PyTorch's attention, graphs that are
replayed."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from perfkit import handwritten
from perfkit.backends import get
from perfkit.backends.interface import Program
from perfkit.content import load_content_module
from perfkit.handwritten import attention, fastest_attention, language, library_attention
from perfkit.workloads.loader import find
from tests.support.backends.by_hand import far, pair, settings

MEASURED = fastest_attention.measured
CPU = [torch.profiler.ProfilerActivity.CPU]


@pytest.fixture
def library_everywhere(monkeypatch):
    """PyTorch's operator for CPUs in the place of cuDNN's, and like that one for fewer heads of keys."""
    monkeypatch.setattr(language, "FLASH_DEVICES", ("cpu", "cuda"))

    def repeated(q, *of_keys):
        return [x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in of_keys]

    def forward(q, k, v, scale):
        k, v = repeated(q, k, v)
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True, scale=scale)

    def backward(dy, q, k, v, y, lse, scale):
        own = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        dq, *of_keys = own(dy, q, *repeated(q, k, v), y, lse, 0.0, True, scale=scale)
        return dq, *(d.unflatten(1, (k.shape[1], -1)).sum(2) for d in of_keys)

    operators = library_attention.Operators("the CPU's", forward, backward)
    monkeypatch.setattr(library_attention, "OPERATORS", (operators,))
    monkeypatch.setattr(fastest_attention, "measured", lambda *_: {fastest_attention.OWN: 2e5, operators.name: 1e5})


def require_equal_steps(workload, given, by_hand, eager):
    """Two steps of two batches each: outputs, losses and gradients as eager's in fp64."""
    for step in range(2):
        data = [workload.batch(given, 2 * step + i) for i in range(2)]
        outputs, loss = by_hand.train_step(data)
        expected, expected_loss = eager.train_step(data)
        assert far(outputs, expected) < 1e-4
        assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
        gradients = eager.gradients()
        assert max(far(by_hand.gradients()[name], gradients[name]) for name in gradients) < 1e-4


@pytest.mark.parametrize("time", [8, 9])
def test_queries_in_blocks(gpt2, monkeypatch, time):
    """Two or three blocks; what is right of the diagonal's is neither computed nor kept."""
    monkeypatch.setattr(attention, "QUERIES", 4)
    given = settings(gpt2, sequence_length=time)
    by_hand, eager = pair(gpt2, given)
    batch = gpt2.batch(given, 0)
    for _ in range(2):
        outputs, loss = by_hand.train_step([batch])
        expected, expected_loss = eager.train_step([batch])
        assert far(outputs, expected) < 1e-4
        assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
        gradients = eager.gradients()
        assert max(far(by_hand.gradients()[name], gradients[name]) for name in gradients) < 1e-4
    kept = by_hand.step.kept[0].tensors
    assert [kept[f"att {i}"].shape[2:] for i in range(2)] == [(4, 4), (4, 8)]


@pytest.mark.usefixtures("library_everywhere")
@pytest.mark.parametrize("recompute", [False, True])
def test_pytorchs_attention_where_it_is_the_fastest(workload, recompute):
    """GPT-2 projects to q, k and v at once; Llama by products of their own, with fewer heads of keys."""
    given = settings(workload, variant="sdpa", grad_accumulation=2, recompute=recompute)
    by_hand, eager = pair(workload, given)
    assert isinstance(by_hand.step.attention, library_attention.LibraryAttention)
    require_equal_steps(workload, given, by_hand, eager)
    assert by_hand.warnings() == [
        "Attention of a layer, forward and backward, measured once on this machine: perfkit's kernel 200 µs, the CPU's "
        "100 µs. The fastest runs."
    ]


@pytest.fixture
def catalog_everywhere(monkeypatch):
    """Products by the catalog's operations, and GELU inside of them, on a CPU: by PyTorch's operators there."""
    from perfkit.handwritten.products import Products

    def by_catalog(self, call, device):
        self._call, self._catalog = call, True

    monkeypatch.setattr(Products, "__init__", by_catalog)
    module = load_content_module("workloads", Path(inspect.getfile(type(find("gpt2")))).parent / "_gpt2_by_hand.py")
    monkeypatch.setattr(module, "fastest_gelu", lambda *_: (True, True, ["GELU: measured."]))


@pytest.mark.usefixtures("catalog_everywhere")
def test_products_of_the_catalog_with_gelu_inside(workload):
    given = settings(workload, grad_accumulation=2)
    by_hand, eager = pair(workload, given)
    require_equal_steps(workload, given, by_hand, eager)
    with torch.profiler.profile(activities=CPU) as profile:
        by_hand.train_step([workload.batch(given, i) for i in range(2)])
    called = {event.name for event in profile.events()}
    assert {"perfkit::linear_forward", "perfkit::linear_backward_input", "perfkit::linear_backward_weight"} <= called
    assert ("perfkit::linear_gelu_backward" in called) is (workload.name == "gpt2")
    assert ("GELU: measured." in by_hand.warnings()) is (workload.name == "gpt2")


class Captured:
    """A CUDA graph as far as a CPU can have one: what was captured is run again at each replay.

    Here capturing runs it too, and so the first replay does not.
    """

    def __init__(self, run):
        self.run, self.replays = run, 0

    def replay(self):
        self.replays += 1
        if self.replays > 1:
            self.run()


def replayed(program: Program) -> list[Captured]:
    """Let `program` replay its parts; the graphs it will have."""
    found: list[Captured] = []

    def capture(run, pool):
        found.append(Captured(run))
        return found[-1], run(), pool

    program.graphs = handwritten.Graphs(capture)
    return found


@pytest.mark.usefixtures("library_everywhere")
@pytest.mark.parametrize("recompute", [False, True])
def test_results_stay_where_graphs_read_them(gpt2, monkeypatch, recompute):
    """From a layer's first capture on, which may be that of the forward, while the backward's are still to come.

    A watched step, which replays nothing, keeps its own.
    """
    given = settings(gpt2, variant="sdpa", grad_accumulation=2, recompute=recompute)
    by_hand, eager = pair(gpt2, given)
    found, capturing = by_hand.step.attention, []
    monkeypatch.setattr(library_attention, "_captures", lambda tensor: bool(capturing))
    places = []

    def capture(run, pool):
        capturing.append(True)
        graph = Captured(run), run(), pool
        capturing.clear()
        places.append({kept: y.data_ptr() for kept, (y, _) in found._results.items()})
        return graph

    by_hand.graphs = handwritten.Graphs(capture)
    for step in range(4):
        data = [gpt2.batch(given, 2 * step + i) for i in range(2)]
        with torch.profiler.profile(activities=CPU) if step == 2 else nullcontext():
            outputs, _ = by_hand.train_step(data)
        expected, _ = eager.train_step(data)
        assert far(outputs, expected) < 1e-4
    assert len(places) == 3  # forward, and the backward of a step's first and second batch
    assert {kept: y.data_ptr() for kept, (y, _) in found._results.items()} == places[0] == places[1] == places[2]
    assert not found._watched


def test_replays_follow_batches_accumulation_and_numbers(workload):
    """Graphs hold no batch, no count of targets, no step number and no learning rate."""
    given = settings(workload, grad_accumulation=2)
    plain, other = (get("llmc").prepare(workload, workload.build(given), given) for _ in range(2))
    graphs = replayed(other)
    for step in range(4):
        data = [workload.batch(given, 2 * step + i) for i in range(2)]
        if step == 2:
            data[1] = data[1][0], data[1][1].clone()
            data[1][1][:, ::2] = -1
        results = zip(plain.train_step(data), other.train_step(data), strict=True)
        assert all(torch.equal(a, b) for a, b in results)
        assert all(torch.equal(other.gradients()[name], g) for name, g in plain.gradients().items())
        assert all(torch.equal(other.parameters()[name], p) for name, p in plain.parameters().items())
    assert other.replayed and not plain.replayed
    assert [graph.replays for graph in graphs] == [7, 3, 3]  # forward; backward of the first batch, and of the second
    assert "replay forward and backward as CUDA graphs" in other.warnings()[0]
    assert plain.graphs is None and not plain.warnings()


def test_nothing_is_replayed_while_a_profiler_listens(gpt2):
    given = settings(gpt2)
    program = get("llmc").prepare(gpt2, gpt2.build(given), given)
    graphs = replayed(program)
    batch = gpt2.batch(given, 0)
    for _ in range(3):
        program.train_step([batch])
    before = [graph.replays for graph in graphs]
    with torch.profiler.profile(activities=CPU) as profile:
        program.train_step([batch])
    assert [graph.replays for graph in graphs] == before == [2, 2]
    assert any(event.name == "perfkit::layernorm_backward" for event in profile.events())


@pytest.fixture
def measurements(monkeypatch, tmp_path):
    """A cache of its own, a GPU's name, and times that are counted out."""
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    times = iter(float(i) for i in range(100, 0, -1))  # what is measured later is faster
    monkeypatch.setattr(fastest_attention, "replayed_ns", lambda runs: [(run(), next(times))[1] for run in runs])
    return tmp_path


def test_attention_is_measured_once_for_a_shape(measurements, library_everywhere):
    q = torch.empty(1, 2, 9, 16)
    assert MEASURED(q, 2) == {fastest_attention.OWN: 100.0, "the CPU's": 99.0}
    assert MEASURED(q, 2) == {fastest_attention.OWN: 100.0, "the CPU's": 99.0}
    assert MEASURED(torch.empty(1, 2, 8, 16), 2)["the CPU's"] == 97.0
    for path in (measurements / "attention").iterdir():
        path.write_text("{")
    assert MEASURED(q, 2)["the CPU's"] == 95.0


# Alone; from one projection to queries, keys and values, and from three.
@pytest.mark.parametrize(("kv_heads", "at_once"), [(4, None), (2, None), (4, True), (4, False), (2, False)])
@pytest.mark.parametrize("fault", ["wrong", "refused"])
def test_an_operator_that_is_wrong_or_does_not_run_is_not_taken(
    measurements, library_everywhere, monkeypatch, fault, kv_heads, at_once
):
    (right,) = library_attention.OPERATORS

    def forward(q, k, v, scale):
        if fault == "refused":
            raise RuntimeError("cuDNN has no engine for this")
        y, lse = right.forward(q, k, v, scale)
        return 1.2 * y, lse

    wrong = library_attention.Operators("cuDNN", forward, right.backward)
    monkeypatch.setattr(library_attention, "OPERATORS", (wrong, right))
    times = MEASURED(torch.empty(1, 4, 9, 16), kv_heads, at_once)
    assert list(times) == [fastest_attention.OWN, right.name]
    assert "; cuDNN gives no right result here." in fastest_attention.note(times)


def test_thunder_llmc_takes_the_fastest_attention(gpt2, library_everywhere, monkeypatch):
    """PyTorch's operator, then the catalog's kernel; the trace names the way, and the report says what was measured."""
    from perfkit.backends.thunder import support

    support.load()
    get("thunder-llmc").load(settings(gpt2))
    from thunder.core import dtypes

    from perfkit.backends.thunder.executor import attention as claimed

    monkeypatch.setattr(claimed, "DEVICES", ("cpu",))
    monkeypatch.setattr(claimed, "_SIXTEEN_BITS", (dtypes.float32,))
    (library,) = library_attention.OPERATORS
    for times in ({fastest_attention.OWN: 2e5, library.name: 1e5}, {fastest_attention.OWN: 1e5, library.name: 2e5}):
        monkeypatch.setattr(claimed, "_measured", {})
        monkeypatch.setattr(fastest_attention, "measured", lambda *_, times=times: times)
        given = settings(gpt2, variant="sdpa", dimensions={"layers": "1"})
        eager, program = (get(name).prepare(gpt2, gpt2.build(given), given) for name in ("eager", "thunder-llmc"))
        for step in range(2):
            data = [gpt2.batch(given, step)]
            (expected, _), (outputs, _) = eager.train_step(data), program.train_step(data)
            assert far(outputs, expected) < 1e-4
            gradients = eager.gradients()
            assert max(far(program.gradients()[name], gradients[name]) for name in gradients) < 1e-4
        called = {symbol.name: symbol.count for symbol in program.symbols()}
        assert called["attention_forward"] == called["attention_backward"] == 1
        assert f"'{min(times, key=times.get)}'".replace("'", '"') in program.generated().replace("'", '"')
        assert fastest_attention.note(times) in program.warnings()
