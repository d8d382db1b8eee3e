"""An allocation that fails in a watched program: the snapshot of that moment, its owners, and what would leave room."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfkit.capture import launched, program
from perfkit.capture.agent.models.outermost import Models
from perfkit.capture.agent.order import SHORTAGE
from perfkit.capture.agent.patches import Patches
from perfkit.capture.agent.recording.shortage import Shortage
from perfkit.cli import main
from perfkit.memory.analyse import analyse
from perfkit.readers.snapshot.read import read_snapshot
from tests.support.allocator import ACTIVATIONS, GRADIENTS, Allocator, training


class _Event:
    """Stands for an event of CUDA: one that is over."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: _Event) -> float:
        return 2.5


def _failed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> torch.nn.Linear:
    """Write what the observer writes when an allocation fails, with the tensors of a model as what is known."""
    model = torch.nn.Linear(8, 8)
    model.weight.grad = torch.ones(8, 8)
    models = Models()
    models.add(model)
    allocator = Allocator()
    training(allocator, fails=True)
    plain = allocator.snapshot()
    address, size = min((a, s) for a, (s, _, _) in allocator.live.items())
    monkeypatch.setattr(
        "perfkit.capture.agent.tracing.owned_tensors.place",
        lambda one: (address, size) if one is model.weight else None,
    )
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: plain)
    shortage = Shortage(folder, models)
    shortage._blocks = {f"h.{n}": [ACTIVATIONS, 1024, [_Event(), _Event()]] for n in range(2)}
    shortage._failed(0, 40 << 20, 80 << 30, 30 << 20)
    return model


def test_the_snapshot_names_what_the_objects_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _failed(tmp_path, monkeypatch)
    (device,) = analyse([read_snapshot(tmp_path / SHORTAGE)], "test").devices
    assert device.end is not None
    known = [(one.kind, one.name) for one in device.end.owners if one.known]
    assert known == [("parameters", "Linear.weight")]
    remedies = {one.name: one for one in device.remedies}
    assert remedies["checkpointing"].saves == 2 * (ACTIVATIONS - 1024)
    assert remedies["checkpointing"].costs_ns == 5e6
    assert "expandable segments" in remedies
    assert "set_to_none" not in remedies, "this program frees its gradients before the forward pass"


def test_gradients_that_are_held_in_the_forward_pass(tmp_path: Path) -> None:
    allocator = Allocator()
    training(allocator, steps=2)
    from tests.support.allocator import FIRST

    allocator.alloc(ACTIVATIONS, FIRST)
    allocator.fail(40 << 20, 1 << 20, FIRST)
    path = tmp_path / "oom.pickle"
    path.write_bytes(pickle.dumps(allocator.snapshot()))
    (device,) = analyse([read_snapshot(path)], "test").devices
    assert {one.name: one.saves for one in device.remedies}["set_to_none"] == 2 * GRADIENTS


def test_the_program_ends_as_it_does_and_the_report_goes_to_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: Any, order: Any, folder: Path) -> int:
        _failed(folder / "process-1", monkeypatch)
        return 17

    monkeypatch.setattr(launched, "run", run)
    monkeypatch.setattr(program, "Watch", lambda: _Nothing())
    with pytest.raises(SystemExit) as ended:
        main(["capture", "--memory", "--out", str(tmp_path / "run"), "--", "python3", "x.py"])
    assert ended.value.code == 17
    said = capsys.readouterr()
    assert said.out == ""
    assert "An allocation of 40.00 MiB failed at /home/u/model.py:25 in forward" in said.err
    assert (tmp_path / "run-oom" / "report-memory.html").is_file()
    assert not (tmp_path / "run").exists()


class _Nothing(SimpleNamespace):
    """A watch of no GPU."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def test_what_the_program_records_itself_stays_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", lambda observer: None, raising=False)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda *args, **_: asked.append(args))
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda begin: begin())
    for of_program in (False, True):
        asked.clear()
        shortage, patches = Shortage(tmp_path, Models()), Patches()
        shortage.install(patches)
        if of_program:
            torch.cuda.memory._record_memory_history("all")
        shortage.step_over(1)
        assert shortage.watches_blocks
        shortage.step_over(2)
        assert not shortage.watches_blocks
        patches.restore()
        assert asked == [("all",), ("all",) if of_program else (None,)]
