"""Models of one's own run in whatever form they are written, on each backend, and are checked."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from perfkit import backends
from perfkit.errors import UsageError
from perfkit.workloads import find, resolve_settings
from tests.support.compiled import fresh_graphs
from tests.support.workloads import own
from tests.support.workloads.checking import verdict

OWN = find(str(Path(__file__).parents[1] / "support" / "workloads" / "own.py"))
HEAD = """
import torch
from torch.nn.functional import mse_loss
from perfkit.workloads import Workload
from tests.support.workloads.own import Net

class Mine(Workload):
    name = "mine"
    summary = "mine"
    presets = {"small": {"batch_size": 4}}

    def build(self, settings):
        torch.manual_seed(settings.seed)
        return Net("tensor")

    def batch(self, settings, step):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step))
        return x
"""
LOSS = """
    def loss(self, outputs, batch):
        return mse_loss(outputs, batch.roll(1))
"""
STEP = """
    def step(self, model, batch, optimizer):
        loss = mse_loss(model(batch), batch.roll(1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()
"""


@pytest.fixture
def written(tmp_path):
    """`written(text)` is the workload of `HEAD` with the methods in `text`."""

    def write(text: str):
        path = tmp_path / "mine.py"
        path.write_text(HEAD + text, encoding="utf-8")
        return find(str(path))

    return write


@pytest.mark.parametrize("variant", OWN.variants)
def test_every_form_is_checked_and_trains(variant, tmp_path):
    found, first = verdict(resolve_settings(OWN, variant=variant, grad_accumulation=2), tmp_path)
    names = {check.name for check in found.checks}
    outputs = {"outputs.y", "outputs.hidden.0", "outputs.hidden.1"} if variant.endswith("mapping") else {"outputs"}
    assert found.ok, found.problems
    assert outputs | {"loss", "gradient of body.weight", "update of body.bias, step 1"} <= names
    assert len(first["found"].losses) == 3 and first["warnings"] == []


@pytest.mark.parametrize("variant", ["tuple-tuple", "mapping-object"])
def test_every_form_infers(variant, tmp_path):
    found, _ = verdict(resolve_settings(OWN, variant=variant, training=False), tmp_path)
    assert found.ok and [check.name for check in found.checks] == ["outputs"]


def test_a_loss_of_its_own(written, tmp_path):
    work = written(LOSS)
    found, first = verdict(resolve_settings(work), tmp_path)
    assert found.ok and {"outputs", "loss", "gradient of body.bias"} <= {check.name for check in found.checks}
    batch = work.batch(resolve_settings(work), 0)
    torch.manual_seed(1337)
    model = own.Net("tensor")
    assert first["found"].losses[0] == pytest.approx(F.mse_loss(model(batch), batch.roll(1)).item())
    inferred, _ = verdict(resolve_settings(work, training=False), tmp_path)
    assert inferred.ok and [check.name for check in inferred.checks] == ["outputs"]


def test_a_step_of_its_own_keeps_the_gradients_that_its_optimizer_used(written, tmp_path):
    work = written(STEP)
    found, first = verdict(resolve_settings(work), tmp_path)
    names = {check.name for check in found.checks}
    assert found.ok and {"loss", "gradient of body.weight", "losses of the first 3 steps"} <= names
    assert not any(name.startswith("update") for name in names)
    assert first["warnings"] == [
        "The step is the workload's own: what its optimizer changes was not checked by itself."
    ]
    settings = resolve_settings(work)
    program = backends.get("eager").prepare(work, work.build(settings), settings)
    before = {name: p.clone() for name, p in program.parameters().items()}
    program.train_step([work.batch(settings, 0)])
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in program.gradients().values()]))
    assert norm.item() == pytest.approx(0.1, rel=1e-4)  # as clipped
    assert all(not torch.equal(p, before[name]) for name, p in program.parameters().items())
    program.outputs_wanted = False
    program.train_step([work.batch(settings, 1)])
    assert program.gradients() == {}  # nothing is copied in timed steps


def test_a_step_of_its_own_is_not_divided(written):
    with pytest.raises(UsageError, match="mine has a training step of its own, which perfkit does not divide"):
        resolve_settings(written(STEP), grad_accumulation=2)
    assert resolve_settings(written(STEP), training=False).training is False


@pytest.mark.parametrize("text", [LOSS, STEP], ids=["loss", "step"])
def test_thunder_takes_them_too(text, written, tmp_path):
    if missing := backends.get("thunder").unavailable():
        pytest.skip(missing)
    found, _ = verdict(resolve_settings(written(text)), tmp_path, "thunder")
    assert found.ok, found.problems


@pytest.mark.slow
@pytest.mark.parametrize("text", [LOSS, pytest.param(STEP, marks=pytest.mark.full)], ids=["loss", "step"])
def test_compile_takes_them_too(text, written, tmp_path):
    """With a loss of the workload's own, the model and the loss are one graph."""
    if missing := backends.get("compile").unavailable():
        pytest.skip(missing)
    work = written(text)
    with fresh_graphs():
        found, _ = verdict(resolve_settings(work), tmp_path, "compile")
    assert found.ok, found.problems
    if text == LOSS:
        settings = resolve_settings(work)
        with fresh_graphs():
            program = backends.get("compile").prepare(work, work.build(settings), settings)
            program.train_step([work.batch(settings, 0)])
        assert program.compiler()["graph_breaks"] == {}
        served = {member.module for site in program.call_sites()[0] for member in site.members}
        assert served == {"(root)", "body"}
