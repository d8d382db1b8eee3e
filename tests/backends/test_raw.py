"""The step by hand against autograd in fp64, over shapes that share no factor with a vector."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from torch import Tensor

from perfkit import raw
from perfkit.backends import get
from perfkit.backends.interface import Program
from perfkit.backends.raw import step_by_hand
from perfkit.errors import Unavailable
from perfkit.run_folder import Settings
from perfkit.workloads import Workload, loader
from perfkit.workloads.settings import resolve_settings


@pytest.fixture(scope="module")
def gpt2() -> Workload:
    return loader.find("gpt2")


def settings(workload: Workload, **given: object) -> Settings:
    return resolve_settings(workload, **({"preset": "tiny", "batch_size": 2, "sequence_length": 9} | given))


@pytest.fixture
def flash_everywhere(gpt2, monkeypatch):
    step = step_by_hand(gpt2)
    monkeypatch.setattr(sys.modules[step.__module__], "FLASH_DEVICES", ("cpu", "cuda"))


def pair(workload: Workload, given: Settings) -> tuple[Program, Program]:
    """The step by hand in fp32, and eager in fp64 with the same weights."""
    model = workload.build(given)
    exact = copy.deepcopy(model).double()
    exact.tie()
    return get("llmc").prepare(workload, model, given), get("eager").prepare(workload, exact, given)


def far(got: Tensor, expected: Tensor) -> float:
    return float((got.double() - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize(("rows", "time"), [(2, 9), (1, 1)])
def test_losses_outputs_and_gradients_of_training_are_autograds(gpt2, batches, rows, time):
    given = settings(gpt2, batch_size=rows, sequence_length=time, grad_accumulation=batches)
    by_hand, eager = pair(gpt2, given)
    for step in range(4):
        data = [gpt2.batch(given, batches * step + i) for i in range(batches)]
        outputs, loss = by_hand.train_step(data)
        expected_outputs, expected_loss = eager.train_step(data)
        assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
        assert far(outputs, expected_outputs) < 1e-4
        gradients, expected = by_hand.gradients(), eager.gradients()
        assert gradients.keys() == expected.keys()
        assert max(far(gradients[name], expected[name]) for name in expected) < 1e-4


@pytest.mark.usefixtures("flash_everywhere")
@pytest.mark.parametrize("training", [True, False])
def test_flash_attention_in_the_place_of_the_explicit_one(gpt2, training):
    given = settings(gpt2, variant="sdpa", training=training)
    by_hand, eager = pair(gpt2, given)
    batch = gpt2.batch(given, 0)
    assert by_hand.step.flash
    assert far(by_hand.forward(batch)[0], eager.forward(batch)[0]) < 1e-5
    if training:
        assert float(by_hand.train_step([batch])[1]) == pytest.approx(float(eager.train_step([batch])[1]), rel=1e-5)
        expected = eager.gradients()
        assert max(far(by_hand.gradients()[name], expected[name]) for name in expected) < 1e-4


def test_a_vocabulary_that_is_padded(gpt2, monkeypatch):
    step = step_by_hand(gpt2)
    monkeypatch.setattr(sys.modules[step.__module__], "PADDED_TO", 100)
    given = settings(gpt2)
    by_hand, eager = pair(gpt2, given)
    for number in range(3):
        batch = gpt2.batch(given, number)
        outputs, loss = by_hand.train_step([batch])
        expected, expected_loss = eager.train_step([batch])
        assert far(outputs, expected) < 1e-4
        assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
    wte = "transformer.wte.weight"
    assert by_hand.step.parameters[wte].shape == (600, 64)
    assert by_hand.gradients()[wte].shape == (512, 64)
    assert float(by_hand.step.parameters[wte][512:].abs().max()) == 0.0


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


def test_inference_keeps_the_activations_of_one_layer(gpt2):
    given = settings(gpt2, training=False)
    by_hand, eager = pair(gpt2, given)
    batch = gpt2.batch(given, 0)
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
    assert "recomputes none" in get("llmc").unavailable(settings(gpt2, recompute=True))
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
    arena = raw.Arena({"a": (3,), "b": (2, 5), "c": ()}, torch.float32, "cpu")
    assert [arena[name].shape for name in "abc"] == [(3,), (2, 5), ()]
    assert {(arena[name].data_ptr() - arena.flat.data_ptr()) % 64 for name in "abc"} == {0}
    arena["b"].fill_(1.0)
    assert float(arena.flat.sum()) == 10.0
