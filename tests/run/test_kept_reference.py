"""A reference of an earlier run serves another one only where model, seed, settings, data and code are the same."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from perfkit.run import kept_reference
from perfkit.run.stages.reference import FROM_EARLIER, Reference, run_reference
from perfkit.run.worker import Worker
from perfkit.run_folder import Settings

MODEL = """
import os
import torch
from torch import nn
from perfkit.workloads import Workload

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
    def forward(self, x):
        y = self.body(x) * float(os.environ.get("SCALE_OF_MODEL", "1"))
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


class InProcess:
    """A child that answers in this process, and counts the training steps it was asked for."""

    steps = 0

    def __init__(self) -> None:
        self.worker = Worker(lambda text: None)

    def call(self, command: str, **arguments: Any) -> Any:
        InProcess.steps += arguments["steps"] if command == "first_steps" else 0
        return getattr(self.worker, command)(**arguments)


@contextlib.contextmanager
def started(name: str, folder: Path, settings: Settings) -> Iterator[InProcess]:
    yield InProcess()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PERFKIT_REFERENCES")
    model = tmp_path / "mine.py"
    model.write_text(MODEL)
    return Settings(workload=str(model), preset="small", batch_size=4)


def reference(settings: Settings, tmp_path: Path, **more: Any) -> tuple[Reference, Path, int]:
    """A reference, where it lies, and how many steps were computed for it."""
    InProcess.steps = 0
    scratch = Path(tempfile.mkdtemp(dir=tmp_path))
    start: Any = started
    made = run_reference(settings, start, lambda who, text: None, tmp_path, scratch, **more)
    return made, scratch, InProcess.steps


def test_the_second_run_takes_the_firsts_bits_and_computes_no_step(settings: Settings, tmp_path: Path):
    first, there, steps = reference(settings, tmp_path)
    again, here, more = reference(settings, tmp_path)
    assert (steps, more) == (10, 0)
    assert again.losses == first.losses and len(first.losses) == 10
    names = sorted(file.name for file in there.iterdir())
    assert names == sorted(file.name for file in here.iterdir())
    assert all(np.array_equal(np.load(there / n), np.load(here / n)) for n in names if n.endswith(".npy"))
    assert FROM_EARLIER in again.facts.notes and FROM_EARLIER not in first.facts.notes


@pytest.mark.parametrize("changed", [{"seed": 7}, {"batch_size": 5}, {"training": False}, {"optimizer": "foreach"}])
def test_other_settings_are_another_reference(settings: Settings, tmp_path: Path, changed: dict[str, Any]):
    reference(settings, tmp_path)
    assert reference(msgspec.structs.replace(settings, **changed), tmp_path)[2] > 0


def test_how_it_is_measured_changes_nothing(settings: Settings, tmp_path: Path):
    reference(settings, tmp_path)
    assert reference(msgspec.structs.replace(settings, steps=99, profiler="none"), tmp_path)[2] == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(y ** 2).mean()", "(y ** 2).mean() * 2"),
        ("manual_seed(step)", "manual_seed(step + 1)"),
        ("nn.Linear(8, 8)", "nn.Linear(8, 8, bias=False)"),
    ],
)
def test_a_change_of_the_models_code_or_data_is_another(settings: Settings, tmp_path: Path, before: str, after: str):
    reference(settings, tmp_path)
    Path(settings.workload).write_text(MODEL.replace(before, after))
    changed, _, steps = reference(settings, tmp_path)
    assert steps == 10 and FROM_EARLIER not in changed.facts.notes


def test_what_no_key_shows_is_found_by_the_first_step(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first, _, _ = reference(settings, tmp_path)
    monkeypatch.setenv("SCALE_OF_MODEL", "1.000001")
    other, _, steps = reference(settings, tmp_path)
    assert steps == 10 and other.losses != first.losses
    assert reference(settings, tmp_path)[2] == 0  # the newer one replaced it


def test_a_file_of_perfkits_own_that_changed_makes_all_anew(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reference(settings, tmp_path)
    state = kept_reference._state
    monkeypatch.setattr(kept_reference, "_state", lambda file: "changed" if "correctness" in file else state(file))
    assert reference(settings, tmp_path)[2] == 10


def test_damaged_or_unwanted_ones_are_computed(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reference(settings, tmp_path)
    (kept,) = (tmp_path / "cache" / "references").iterdir()
    (kept / "kept.json").write_text("{")
    assert reference(settings, tmp_path)[2] == 10
    assert reference(settings, tmp_path, keep=False)[2] == 10
    monkeypatch.setenv("PERFKIT_REFERENCES", "new")
    assert reference(settings, tmp_path)[2] == 10


def test_the_oldest_go_where_all_take_too_much(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reference(settings, tmp_path)
    (kept,) = (tmp_path / "cache" / "references").iterdir()
    size = sum(file.stat().st_size for file in kept.iterdir())
    monkeypatch.setattr(kept_reference, "MOST_BYTES", int(1.5 * size))
    reference(msgspec.structs.replace(settings, seed=2), tmp_path)
    (left,) = (tmp_path / "cache" / "references").iterdir()
    assert left.name != kept.name
