"""The step by hand against autograd in fp64, over shapes that share no factor with a vector."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

from perfkit import handwritten, kernels, ranges
from perfkit.backends import get
from perfkit.backends.llmc import step_by_hand
from perfkit.errors import InputError, Unavailable
from perfkit.handwritten import fastest_attention, language
from perfkit.readers.kineto.trace import read_trace
from perfkit.workloads import loader
from perfkit.workloads.settings import resolve_settings
from tests.support.backends.by_hand import far, pair, settings


@pytest.fixture
def flash_everywhere(monkeypatch):
    monkeypatch.setattr(language, "FLASH_DEVICES", ("cpu", "cuda"))
    monkeypatch.setattr(fastest_attention, "measured", lambda *_: {fastest_attention.OWN: 1e5})


MODELS = [("gpt2", {}), ("llama", {}), ("llama", {"head": "tied", "kv_heads": 1}), ("llama", {"logits": "inside"})]


@pytest.mark.parametrize(("name", "dimensions"), MODELS)
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize(("rows", "time"), [(2, 9), (1, 1)])
def test_losses_outputs_and_gradients_of_training_are_autograds(name, dimensions, batches, rows, time):
    workload = loader.find(name)
    sizes = {"batch_size": rows, "sequence_length": time, "grad_accumulation": batches}
    given = settings(workload, **sizes, dimensions=dimensions)
    by_hand, eager = pair(workload, given)
    for step in range(4):
        data = [workload.batch(given, batches * step + i) for i in range(batches)]
        outputs, loss = by_hand.train_step(data)
        expected_outputs, expected_loss = eager.train_step(data)
        assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
        assert far(outputs, expected_outputs) < 1e-4
        gradients, expected = by_hand.gradients(), eager.gradients()
        assert gradients.keys() == expected.keys()
        assert max(far(gradients[name], expected[name]) for name in expected) < 1e-4


@pytest.mark.usefixtures("flash_everywhere")
@pytest.mark.parametrize("training", [True, False])
def test_flash_attention_in_the_place_of_the_explicit_one(workload, training):
    given = settings(workload, variant="sdpa", training=training)
    by_hand, eager = pair(workload, given)
    batch = workload.batch(given, 0)
    assert by_hand.step.attention.flash
    assert far(by_hand.forward(batch)[0], eager.forward(batch)[0]) < 1e-5
    if training:
        assert float(by_hand.train_step([batch])[1]) == pytest.approx(float(eager.train_step([batch])[1]), rel=1e-5)
        expected = eager.gradients()
        assert max(far(by_hand.gradients()[name], expected[name]) for name in expected) < 1e-4


def test_a_vocabulary_that_is_padded(workload, monkeypatch):
    monkeypatch.setattr(language, "PADDED_TO", 100)
    given = settings(workload)
    by_hand, eager = pair(workload, given)
    for number in range(3):
        batch = workload.batch(given, number)
        outputs, loss = by_hand.train_step([batch])
        expected, expected_loss = eager.train_step([batch])
        assert far(outputs, expected) < 1e-4
        assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
    head = {"gpt2": "transformer.wte.weight", "llama": "lm_head.weight"}[workload.name]
    assert by_hand.step.parameters[head].shape == (600, 64)
    assert by_hand.gradients()[head].shape == (512, 64)
    assert float(by_hand.step.parameters[head][512:].abs().max()) == 0.0


def test_targets_that_do_not_count(gpt2):
    given = settings(gpt2)
    by_hand, eager = pair(gpt2, given)
    idx, targets = gpt2.batch(given, 0)
    targets = targets.clone()
    targets[:, ::2] = -1
    assert float(by_hand.train_step([(idx, targets)])[1]) == pytest.approx(
        float(eager.train_step([(idx, targets)])[1]), rel=1e-5
    )
    wte = "transformer.wte.weight"
    assert far(by_hand.gradients()[wte], eager.gradients()[wte]) < 1e-4


@pytest.mark.usefixtures("flash_everywhere")
@pytest.mark.parametrize("variant", ["explicit", "sdpa"])
def test_what_is_recomputed_has_the_same_bits(workload, variant):
    given = settings(workload, variant=variant, grad_accumulation=2, dimensions={"layers": 3})
    again = settings(workload, variant=variant, grad_accumulation=2, dimensions={"layers": 3}, recompute=True)
    keeps, recomputes = (get("llmc").prepare(workload, workload.build(s), s) for s in (given, again))
    assert (len(keeps.step.kept), len(recomputes.step.kept)) == (3, 1)
    for step in range(2):
        data = [workload.batch(given, 2 * step + i) for i in range(2)]
        results = zip(keeps.train_step(data), recomputes.train_step(data), strict=True)
        assert all(torch.equal(a, b) for a, b in results)
        assert all(torch.equal(recomputes.gradients()[name], g) for name, g in keeps.gradients().items())


def test_every_kernel_has_a_place_and_its_work(workload, tmp_path):
    given = settings(workload)
    program = get("llmc").prepare(workload, workload.build(given), given)
    batch = workload.batch(given, 0)
    program.train_step([batch])
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)
    with profiler as profile, ranges.step(0):
        program.train_step([batch])
    profile.export_chrome_trace(str(tmp_path / "t.json"))
    places = {"layers": workload.layers, "passes": workload.passes}
    frame = read_trace(tmp_path / "t.json", costs=kernels.cost_model(), **places).frame
    work, updates = frame[frame["pass"] != "optimizer"], frame[frame["pass"] == "optimizer"]
    assert list(updates["name"]) == ["perfkit::adamw_step"]
    assert work["module"].notna().all()
    assert set(work["layer"].dropna()) == {0, 1}
    assert {*frame["pass"]} == {"encoder", "forward", "classifier", "backward", "optimizer"}
    matrix = frame.filter(like="flop_matrix").sum().sum()
    assert matrix == pytest.approx(sum(workload.model_flop(given).values()))
    assert frame["bytes_read"].notna().all()
    assert "other" not in set(frame["family"])


def test_inference_keeps_the_activations_of_one_layer(workload):
    given = settings(workload, training=False)
    by_hand, eager = pair(workload, given)
    batch = workload.batch(given, 0)
    outputs, loss = by_hand.forward(batch)
    assert loss is None
    assert far(outputs, eager.forward(batch)[0]) < 1e-5
    assert len(by_hand.step.kept) == 1
    assert by_hand.gradients() == {}


def test_outputs_stay_only_where_they_are_wanted(gpt2):
    given = settings(gpt2)
    by_hand, _ = pair(gpt2, given)
    by_hand.outputs_wanted = False
    outputs, _ = by_hand.train_step([gpt2.batch(given, 0)])
    assert outputs.data_ptr() == by_hand.step.scratch["logits"].data_ptr()  # the logits' gradient by now


def test_the_model_works_on_the_parameters_of_the_arena(gpt2):
    given = settings(gpt2)
    by_hand, _ = pair(gpt2, given)
    idx, targets = gpt2.batch(given, 0)
    before = float(by_hand.model(idx, targets)[1].detach())
    for _ in range(3):
        by_hand.train_step([(idx, targets)])
    assert float(by_hand.model(idx, targets)[1].detach()) < before - 0.01


def test_what_cannot_run_by_hand_is_said(gpt2, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr(language.LanguageStep, "recomputes", False)
        assert "gpt2 keeps its activations" in get("llmc").unavailable(settings(gpt2, recompute=True))
    assert get("llmc").unavailable(settings(gpt2, recompute=True)) is None
    own = tmp_path / "own.py"
    own.write_text(
        "import torch\nfrom perfkit.workloads import Workload\n\n"
        "class Own(Workload):\n    name, summary, presets = 'own', 'a layer', {'small': {'batch_size': 2}}\n"
        "    def build(self, settings): return torch.nn.Linear(2, 2)\n"
        "    def batch(self, settings, step): return (torch.ones(2, 2),)\n"
    )
    assert "brings no step written by hand" in get("llmc").unavailable(
        resolve_settings(loader.find(str(own)), training=False)
    )
    monkeypatch.setattr(
        type(gpt2), "optimizer", lambda self, model, settings: torch.optim.SGD(model.parameters(), lr=0.1)
    )
    with pytest.raises(Unavailable, match="does not know the optimizer of gpt2"):
        get("llmc").prepare(gpt2, gpt2.build(settings(gpt2)), settings(gpt2))


@pytest.mark.parametrize("defined", [0, 2])
def test_a_file_with_no_step_or_several_is_refused(gpt2, monkeypatch, tmp_path, defined):
    source = Path(inspect.getfile(type(gpt2))).with_name(gpt2.by_hand).read_text()
    more = "class Another(GPT2ByHand): ..." if defined else "del GPT2ByHand"
    (tmp_path / "steps.py").write_text(f"{source}\n{more}\n")
    monkeypatch.setattr(type(gpt2), "by_hand", str(tmp_path / "steps.py"))
    with pytest.raises(
        InputError, match="defines no step by hand" if defined == 0 else "defines 2 subclasses of RawStep"
    ):
        step_by_hand(gpt2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_optimizers_kernel_is_checked_by_itself(gpt2, dtype):
    given = settings(gpt2)
    program = get("llmc").prepare(gpt2, gpt2.build(given).to(dtype), given)
    checks = program.checks()
    assert [c.name for c in checks] == [f"adamw_step by itself: {name}" for name in ("param", "m", "v")]
    assert all(c.ok and c.allowed == 1e-5 for c in checks)
    still = get("llmc").prepare(gpt2, gpt2.build(given), settings(gpt2, training=False))
    assert still.checks() == []


def test_an_arena_puts_tensors_on_cache_lines():
    arena = handwritten.Arena({"a": (3,), "b": (2, 5), "c": ()}, torch.float32, "cpu")
    assert [arena[name].shape for name in "abc"] == [(3,), (2, 5), ()]
    assert {(arena[name].data_ptr() - arena.flat.data_ptr()) % 64 for name in "abc"} == {0}
    arena["b"].fill_(1.0)
    assert float(arena.flat.sum()) == 10.0
