"""DataLoaders: what their workers do, what limits, and the step with other numbers of workers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from perfkit.analysis.loading import loadings, replay, sentences
from perfkit.analysis.loading_results import COMPUTING, CORES, DISK, STEP, WAITING, Loading
from tests.support.sweeps import rest

MS = 1e6


@pytest.mark.parametrize(("workers", "step"), [(0, 50), (1, 40), (2, 20), (3, 40 / 3), (4, 10), (8, 10)])
def test_workers_share_the_batches_until_the_step_limits(workers: int, step: float) -> None:
    assert replay([40 * MS], [10 * MS], workers, 2) == pytest.approx(step * MS, rel=0.02)


def test_a_slow_batch_holds_up_those_behind_it_where_few_stand_ready() -> None:
    """Every fourth batch takes 100 ms, the others none, the step 30: two workers with one batch ahead each wait for it;
    four workers with eight ahead do not."""
    batches = [100 * MS, 0, 0, 0]
    assert replay(batches, [30 * MS], 2, 1) > 32 * MS
    assert replay(batches, [30 * MS], 4, 8) == pytest.approx(30 * MS)


def loader(workers: int, batch: list[float], step: float = 20, wait: float = 10, **more: Any) -> dict[str, Any]:
    """What is noted of a loader with a batch a step; `batch` has its ms in all, computing, without a core, and the
    bytes that it reads."""
    asks = [[i * step * MS, (i * step + wait) * MS, 0, -1, 0, i % 3] for i in range(6)]
    time, computing, queued, read = batch
    made = [
        [at, at + time * MS, computing * MS, queued * MS, read, (i + 1) * computing * MS]
        for i, at in enumerate(i * time * MS for i in range(-1, 6))
    ]
    lines = [
        {"file": "data.py", "line": 7, "function": "read", "code": "open(path)", "library": "", "ns": 90},
        {"file": "data.py", "line": 9, "function": "read", "code": "return x", "library": "", "ns": 10},
    ]
    processes = [{"worker": n, "batches": made, "lines": lines} for n in range(workers)]
    return {
        "workers": workers, "prefetch": 2, "in_order": True, "pinned": False, "iterable": False, "cores": 2,
        "timed_ns": 6 * step * MS, "steps": 6, "asks": asks, "processes": processes, **more,
    }  # fmt: skip


def found(noted: dict[str, Any], cpu_ms: float = 8) -> Loading:
    (known,) = loadings({"loading": [noted], "cpu_ns": [cpu_ms * MS, cpu_ms * MS]})
    return known


@pytest.mark.parametrize(
    ("batch", "wait", "limit"),
    [
        ([40, 40, 0, 0], 10, COMPUTING),
        ([40, 16, 24, 0], 10, CORES),
        ([40, 4, 0, 1 << 20], 10, DISK),
        ([40, 4, 0, 0], 10, WAITING),
        ([12, 12, 0, 0], 0.2, STEP),
    ],
)
def test_what_limits(batch: list[float], wait: float, limit: str) -> None:
    assert found(loader(2, batch, wait=wait)).limit == limit


def test_the_step_with_other_numbers_of_workers() -> None:
    """Two workers wait 40 ms for each batch: 20 ms a step, of which the program takes 10 itself."""
    known = found(loader(2, [40, 4, 0, 0]))
    assert {one.workers: round(one.step_ns / MS) for one in known.predictions} == {1: 40, 2: 20, 3: 13, 4: 10}
    assert known.enough is not None and known.enough.workers == 4
    assert (known.ready, known.most_ready) == (1, 4)
    said = " ".join(sentences(known))
    assert "With 4 workers the step would take 10.00 ms, with 2 workers it takes 20.00 ms." in said
    assert "90 % waiting for files or others" in said


def test_more_workers_compute_no_faster_than_the_cores() -> None:
    known = found(loader(2, [40, 40, 0, 0], step=24, wait=14))
    assert known.predictions[-1].limit == CORES
    assert known.predictions[-1].step_ns == pytest.approx((40 + 8) / 2 * MS)


def test_without_workers_the_steps_own_thread_makes_the_batches() -> None:
    known = found(loader(0, [0, 0, 0, 0]))
    assert known.batch is not None and known.batch.time_ns == 10 * MS
    assert {one.workers: round(one.step_ns / MS) for one in known.predictions} == {0: 20, 1: 10}


def test_nothing_is_predicted_where_the_present_step_is_another() -> None:
    known = found(loader(2, [90, 90, 0, 0]))
    assert known.reckoned_ns == pytest.approx(49 * MS, rel=0.02)  # 90 ms of work on two cores, and 8
    assert known.predictions == [] and known.enough is None
    assert not any("would take" in sentence for sentence in sentences(known))


def test_without_timed_steps_or_workers_that_left_anything_nothing_is_made_up() -> None:
    assert loadings({"loading": [loader(2, [40, 4, 0, 0], steps=0)]}) == []
    known = found(loader(2, [40, 4, 0, 0], processes=[]))
    assert (known.limit, known.batch, known.predictions, known.lines) == ("", None, [], [])
    assert found(loader(2, [40, 4, -1, 0])).limit == COMPUTING, "what is no computing may be no core"


PROGRAM = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, i):
        time.sleep(0.002)  # slow
        return torch.full((4,), i / 160)

if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(Samples(), 8, num_workers=2, multiprocessing_context=sys.argv[1]):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    print(f"{model.weight.sum().item():.8f}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", rest("spawn"), rest("forkserver")])
def test_the_line_that_holds_up_the_workers(method: str, run_cli: Any, tmp_path: Path) -> None:
    program = tmp_path / "loads.py"
    program.write_text(PROGRAM)
    line = 1 + PROGRAM.splitlines().index("        time.sleep(0.002)  # slow")
    options = ["--warmup", "6", "--steps", "2", "--out", tmp_path / "run"]
    done = run_cli(["capture", *options, "--", sys.executable, program, method], env={"OMP_NUM_THREADS": "1"})
    assert done.rc == 0, done.stderr
    (backend,) = json.loads((tmp_path / "run" / "report.json").read_text())["backends"]
    (known,) = backend["loading"]
    assert (known["workers"], known["prefetch"], known["batches"]) == (2, 2, 1.0)
    assert [one["worker"] for one in known["processes"]] == [0, 1]
    assert sum(one["batches"] for one in known["processes"]) <= 20
    first = known["lines"][0]
    assert (Path(first["file"]).name, first["line"], first["function"]) == ("loads.py", line, "__getitem__")
    assert first["code"] == "time.sleep(0.002)  # slow" and first["share"] > 0.5
    assert known["batch"]["time_ns"] >= 8 * 2 * MS
    (waits,) = [one for one in backend["findings"] if one["name"] == "data"]
    assert (waits["lines"][0]["line"], waits["lines"][0]["code"]) == (line, first["code"])
    assert "stood ready when asked for" in waits["evidence"]
    shown = run_cli(["report", tmp_path / "run", "--limit", "0"]).stdout
    assert all(title in shown for title in ("Data loading", "Workers", "Lines of workers"))
    assert "Lines of workers" in (tmp_path / "run" / "report.html").read_text()
