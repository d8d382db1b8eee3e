"""The reference of a run: fp64 for the first step alone where eager's own losses decide of later ones, else for all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfkit.correctness import FirstSteps
from perfkit.run.stages.reference import Reference, run_reference, verdict_of
from perfkit.run.worker import Worker
from perfkit.run_folder import Settings, WorkloadFacts

MODEL = """
import torch
from torch import nn
from perfkit.workloads import Workload

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
    def forward(self, x):
        y = self.body(x)
        return y, (y ** 2).mean()

class Mine(Workload):
    name, summary = "mine", "a linear layer"
    presets = {"small": {"batch_size": 4}}
    def build(self, settings):
        torch.manual_seed(settings.seed)
        return Scaled()
    def batch(self, settings, step):
        return (torch.randn(4, 8, generator=torch.Generator().manual_seed(step)),)
"""
LOSSES = [4.0 - 0.1 * step for step in range(10)]


class InProcess:
    """A child that answers in this process, and keeps how many steps it was asked for."""

    steps: list[int] = []  # of all children of a test

    def __init__(self) -> None:
        self.worker = Worker(lambda text: None)

    def call(self, command: str, **arguments: Any) -> Any:
        if command == "first_steps":
            InProcess.steps.append(arguments["steps"])
        return getattr(self.worker, command)(**arguments)


@contextlib.contextmanager
def started(name: str, folder: Path, settings: Settings) -> Iterator[InProcess]:
    yield InProcess()


@pytest.mark.parametrize(("dtype", "steps"), [("fp32", 1), ("bf16", 10)])
def test_fp64_computes_later_steps_only_where_eager_cannot_decide(tmp_path: Path, dtype: str, steps: int) -> None:
    InProcess.steps = []
    (tmp_path / "mine.py").write_text(MODEL)
    settings = Settings(workload=str(tmp_path / "mine.py"), preset="small", batch_size=4, dtype=dtype)
    start: Any = started
    reference = run_reference(settings, start, lambda who, text: None, tmp_path, tmp_path)
    assert InProcess.steps == [steps] and len(reference.losses) == steps
    every = reference.further()
    if steps == 1:
        assert InProcess.steps == [1, 10]
        assert len(every) == 10 and every[:1] == reference.losses
    else:
        assert InProcess.steps == [10] and every == []
    assert list(tmp_path.glob("*.npy")), "outputs and gradients of the first step stay"


def judged(backend: list[float], eager: list[float], fp64: list[float]) -> tuple[bool, list[str], int]:
    """Verdict on losses, its problems, and how often fp64 was asked for later ones."""
    asked = []

    def further() -> list[float]:
        asked.append(1)
        return fp64

    reference = Reference(
        WorkloadFacts(title="t", parameters=1, samples_per_step=1, sample_name="rows"), "fp64", fp64[:1], further
    )
    verdict = verdict_of(FirstSteps(losses=backend), FirstSteps(losses=eager), reference, "fp32")
    again = verdict_of(FirstSteps(losses=backend), FirstSteps(losses=eager), reference, "fp32")
    assert again == verdict
    return verdict.ok, verdict.problems, len(asked)


def test_losses_near_eagers_need_no_further_step_in_fp64() -> None:
    assert judged([loss * (1 + 3e-7) for loss in LOSSES], LOSSES, LOSSES) == (True, [], 0)


def test_a_later_loss_that_differs_is_judged_by_fp64() -> None:
    wrong = [*LOSSES[:6], *(loss * 1.001 for loss in LOSSES[6:])]
    ok, problems, asked = judged(wrong, LOSSES, LOSSES)
    assert not ok and asked == 1
    assert problems == ["losses of the first 10 steps: relative error 0.001, allowed 0.0001."]


def test_a_backend_is_right_where_eager_itself_is_noisy() -> None:
    """Eager's later losses are 1e-3 off fp64's: three times that is allowed, as where fp64 computes all of them."""
    noisy = [*LOSSES[:3], *(loss * 1.001 for loss in LOSSES[3:])]
    assert judged(LOSSES, noisy, LOSSES) == (True, [], 1)


def test_a_loss_that_is_not_finite_never_passes() -> None:
    ok, _, asked = judged([*LOSSES[:9], float("nan")], LOSSES, LOSSES)
    assert not ok and asked == 1
