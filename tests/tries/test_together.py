"""Launches that start at the same time: which programs may, and that no two processes are timed at once."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from perfkit.capture.agent.order import CHILDREN, DEVICE, FREE, HOST, Order, ProcessResult
from perfkit.compare.stopping import StoppingRule
from perfkit.tries import interleaved, together
from perfkit.tries.interleaved import TimedCommand
from perfkit.tries.running import Ran
from perfkit.tries.trees import Tree

GB = 1e9
ORDER = Order(5, 6, stop=True, lines=False, timed=True)
PROGRAM = """\
import os, sys, time
import torch

{first}
log = open(sys.argv[1] + f"/{{os.getpid()}}-{side}", "w")
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    print(time.monotonic(), file=log, flush=True)
    time.sleep({sleep})
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {{step}} loss {{loss.item():.6f}}", flush=True)
"""
# A program that needs something for itself: one beside it ends.
ALONE = "import fcntl; lock = open(sys.argv[1] + '/lock', 'w'); fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)"


def ran(processes: int = 1, **takes: float) -> Ran:
    named = {name.replace("_", " "): value for name, value in takes.items()}
    return Ran(0, "", [1.0], [1.0], ProcessResult(takes=named), 1.0, processes)


ON_GPU = ran(host=GB, device=4 * GB, device_free=16 * GB)


@pytest.mark.parametrize(
    ("pair", "order", "launches"),
    [
        ([ran(host=1 * GB)] * 2, ORDER, 4),  # eight cores
        ([ran(host=10 * GB)] * 2, ORDER, 1),  # 40 GB free, of which 32 are used: three processes
        ([ran(host=10 * GB), ran(host=20 * GB)], ORDER, 0),
        ([ON_GPU] * 2, ORDER, 2),  # four in 16 of 20 GB
        ([ON_GPU, ran(host=GB, device=5 * GB, device_free=15 * GB)], ORDER, 1),
        ([ran(host=GB, children=2.0)] * 2, ORDER, 0),  # which load data, also while it waits
        ([ran(2, host=GB)] * 2, ORDER, 0),  # ranks
        ([ran(0, host=GB)] * 2, ORDER, 0),
        ([ran()] * 2, ORDER, 0),  # no steps were timed
        ([ran(host=GB)] * 2, Order(2, 6, timed=True), 0),  # no step would come between the wait and the timed ones
        ([ran(host=GB)] * 2, Order(whole=True), 0),
    ],
)  # fmt: skip
def test_how_many_at_once(pair: list[Ran], order: Order, launches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together.memory, "available_bytes", lambda: 40 * GB)
    monkeypatch.setattr(together, "read_cpu", lambda: type("Cpu", (), {"usable": 8}))
    assert {HOST, DEVICE, FREE, CHILDREN} == {"host", "device", "device free", "children"}
    assert together.at_once(pair, order) == launches


def sides(tmp_path: Path, first: str = "", sleep: tuple[float, float] = (0.02, 0.01)) -> list[Tree]:
    made = []
    for label, seconds in zip(("before", "after"), sleep, strict=True):
        root = tmp_path / label
        root.mkdir()
        (root / "train.py").write_text(PROGRAM.format(first=first, side=label, sleep=seconds))
        made.append(Tree(label, root, root, tmp_path / "original"))
    return made


def measured(
    tmp_path: Path, trees: list[Tree], launches: int
) -> tuple[interleaved.MeasuredSides, list[tuple[str, list[float]]]]:
    """The result, and the moments in which each process began its steps, by side, in their order."""
    logs, scratch = tmp_path / "logs", tmp_path / "scratch"
    logs.mkdir()
    scratch.mkdir()
    program = TimedCommand([sys.executable, "train.py", str(logs)], ORDER)
    done = interleaved.measure(program, trees, StoppingRule(launches=launches, early=0), scratch, lambda *_: None)
    found = [
        (one.name.partition("-")[2], [*map(float, one.read_text().split())])
        for one in logs.glob("*-*")
        if one.stat().st_size
    ]
    return done, sorted(found, key=lambda one: one[1][-1])


@pytest.mark.slow
def test_processes_start_together_and_are_timed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "at_once", lambda pair, order: 2)
    done, processes = measured(tmp_path, sides(tmp_path), 2)
    assert done.stopped.startswith("2 launches") and not done.failed and done.checked.status == "right"
    four = processes[2:]  # two ran alone, before
    timed = [moments[3:] for _, moments in four]  # the third step begins before the wait, the fourth after it
    for earlier, later in pairwise(timed):
        assert earlier[-1] < later[0]
    assert max(moments[0] for _, moments in four) < timed[0][0]  # all had begun
    assert all(len(moments) == 1 + ORDER.warmup + ORDER.steps for _, moments in processes)
    for launch, (first, second) in zip(done.launches, (four[:2], four[2:]), strict=True):
        assert [("before", "after")[turn.side] for turn in launch.turns] == [first[0], second[0]]
        steps = {turn.side: sorted(turn.samples_ns)[3] / 1e9 for turn in launch.turns}
        assert steps[0] >= 0.02 and 0.01 <= steps[1] < steps[0]


@pytest.mark.slow
def test_a_program_that_fails_beside_another_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "at_once", lambda pair, order: 1)
    done, _ = measured(tmp_path, sides(tmp_path, ALONE), 1)
    assert len(done.launches) == 1 and not done.failed and done.checked.status == "right"


def test_a_program_of_workers_is_known(tmp_path: Path) -> None:
    """What a real process says of itself."""
    (before, _) = sides(tmp_path)
    logs = tmp_path / "logs"
    logs.mkdir()
    one = interleaved.run([sys.executable, "train.py", str(logs)], before, ORDER, tmp_path / "scratch", 60.0)
    assert one.processes == 1 and one.result.takes[CHILDREN] == 0 and 5e7 < one.result.takes[HOST] < 5e9
