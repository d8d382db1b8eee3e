"""Check that perfkit names the late rank of a real job, its delay and the cause: one straggler planted at a time.

    python benchmarks/planted_stragglers.py                 all kinds over gloo on this machine's CPU, then healthy runs
    python benchmarks/planted_stragglers.py --device cuda   over NCCL, a GPU a rank
    python benchmarks/planted_stragglers.py --only sleep    kinds whose name holds this; several by commas
    python benchmarks/planted_stragglers.py --folder DIR    keep the traces there

A job is a small model under DistributedDataParallel, recorded by torch.profiler on every rank, with nothing of perfkit
in it. Must be reached: the right rank in every kind, the delay within 15 % of what was planted, the right cause in all
kinds but one, and no straggler in a healthy run. A busy machine delays ranks by itself: then the delays are off.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEPS, WARMUP, WIDTH = 9, 3, 512
BATCH = {"cpu": 64, "cuda": 32768}  # rows; a GPU needs more before a multiple of them takes longer
DELAY = 0.060  # seconds planted a step
CYCLES = 1.2e8  # of a GPU's clock: about as long
MORE = 12  # times the rows
HEALTHY = 8
NEAR = 0.15


@dataclass(frozen=True)
class Kind:
    """A planted delay: its ranks, its steps, and the cause that should be named."""

    cause: str
    late: tuple[int, ...] = (1,)  # none in a healthy job
    ranks: int = 2
    every: int = 1


KINDS = {
    "sleep": Kind("host"),
    "python": Kind("host"),
    "loader": Kind("host"),
    "kernel": Kind("kernels"),
    "more-kernels": Kind("work"),
    "more-data": Kind("work"),
    "rank-0": Kind("host", late=(0,)),
    "every-third": Kind("host", every=3),
    "two-of-four": Kind("host", late=(1, 2), ranks=4),
}
HEALTHY_JOB = Kind("", late=())
OF_THE_STEP = ("kernel", "more-data")  # kinds that change the step's own work instead of delaying it


def main() -> int:
    """Run the kinds and the healthy jobs, print a line for each; return 1 when something is not reached."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--healthy", type=int, default=HEALTHY, help="jobs without a straggler")
    parser.add_argument("--folder", type=Path, help="keep the traces here")
    options = parser.parse_args()
    asked = [t for t in options.only.split(",") if t]
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        for name, kind in possible(options.device).items():
            if not asked or any(text in name for text in asked):
                found.append(judged(name, kind, job(folder / name, name, kind, options.device)))
        for number in range(options.healthy):
            found.append(healthy(number, job(folder / f"healthy-{number}", "", HEALTHY_JOB, options.device)))
    missed = sum(not one["cause"] for one in found)
    reached = all(one["rank"] and one["delay"] for one in found) and missed <= 1
    print(f"{len(found)} jobs: {'all reached' if reached else 'NOT reached'}, {missed} without the right cause")
    return int(not reached)


def possible(device: str) -> dict[str, Kind]:
    """The kinds that this machine has enough GPUs for; all on a CPU."""
    if device == "cpu":
        return KINDS
    import torch

    return {name: kind for name, kind in KINDS.items() if kind.ranks <= torch.cuda.device_count()}


def judged(name: str, kind: Kind, report: Any) -> dict[str, bool]:
    """Print on one line, and return, whether rank, delay and cause are right."""
    named = {s.rank: s for s in report.stragglers}
    delays = [named[rank].late_ns.value / 1e9 for rank in kind.late if rank in named]
    planted = [planted_seconds(report, rank) for rank in kind.late if rank in named]
    right = {
        "rank": set(named) == set(kind.late),
        "delay": bool(delays) and all(abs(d / p - 1) <= NEAR for d, p in zip(delays, planted, strict=True)),
        "cause": all(named[r].causes and named[r].causes[0].kind == kind.cause for r in kind.late if r in named),
    }
    said = "; ".join(f"rank {r} {s.late_ns.value / 1e6:.1f} ms: {s.causes[0].text if s.causes else '?'}"
                     for r, s in named.items())  # fmt: skip
    wanted = ", ".join(f"{p * 1e3:.1f} ms" for p in planted)
    print(f"{name:13} {verdict(right)}  planted {wanted or '?'}; {said or 'no straggler named'}", flush=True)
    return right


def healthy(number: int, report: Any) -> dict[str, bool]:
    """A job in which nothing was planted: no rank may be named."""
    right = dict.fromkeys(("rank", "delay", "cause"), not report.stragglers)
    said = "; ".join(f"rank {s.rank} {s.late_ns.value / 1e6:.1f} ms" for s in report.stragglers)
    print(f"healthy {number}     {verdict(right)}  {said or 'no straggler named'}", flush=True)
    return right


def verdict(right: dict[str, bool]) -> str:
    """ "right", or WRONG and what is."""
    return "right" if all(right.values()) else "WRONG " + ",".join(k for k, v in right.items() if not v)


def planted_seconds(report: Any, rank: int) -> float:
    """Return the planted delay by the rank's own clock: the median over its late steps."""
    return float(json.loads((Path(report.paths[rank]).parent / f"planted.rank{rank}.json").read_text()))


def job(folder: Path, name: str, kind: Kind, device: str) -> Any:
    """Run a job of `kind.ranks` processes and report on its traces."""
    from perfkit import readers
    from perfkit.ranks.analyse import analyse
    from perfkit.ranks.rank_table import of_table

    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(kind.ranks),
        "OMP_NUM_THREADS": "1",
    }
    commands = [
        subprocess.Popen([sys.executable, __file__, "--rank-of", name, str(folder), device],
                         env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(kind.ranks)
    ]  # fmt: skip
    while any(process.poll() is None for process in commands) and not any(process.poll() for process in commands):
        time.sleep(0.05)
    if any(process.poll() for process in commands):
        for process in commands:
            process.kill()  # the others would wait for the one that failed
        raise SystemExit(f"A rank of {name or 'a healthy job'} failed.")
    traces = sorted(folder.glob("rank*.json"))
    tables = [readers.tables_of(readers.read(path))["profile"] for path in traces]
    return analyse([of_table(table) for table in tables])


# ---- one rank ------------------------------------------------------------------------------------------------------


def rank_of(name: str, folder: Path, device: str) -> None:
    """Train as one rank, with the delay of `name` where this rank is to be late; leave the trace in `folder`."""
    import torch
    from torch import distributed, nn

    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    rank = distributed.get_rank()
    rows_here = BATCH[device]
    kind = KINDS.get(name, HEALTHY_JOB)
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(4)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    plant = planted(name, device) if rank in kind.late else lambda step: 0.0
    took: list[float] = []
    alone = seconds_alone(model, rows_here, device)
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if device == "cuda" else []
    schedule = torch.profiler.schedule(wait=0, warmup=WARMUP, active=STEPS)
    with torch.profiler.profile(
        activities=activities, schedule=schedule, record_shapes=True, acc_events=True,
        on_trace_ready=lambda p: p.export_chrome_trace(str(folder / f"rank{rank}.json")),
    ) as profiler:  # fmt: skip
        for step in range(WARMUP + STEPS):
            late = rank in kind.late and step % kind.every == 0
            rows = MORE * rows_here if late and name == "more-data" else rows_here
            x = torch.randn(rows, WIDTH, device=device)
            delay = plant(step) if late and name not in OF_THE_STEP else 0.0
            if name == "kernel":
                delay = slow_operator(x, late)
            optimizer.zero_grad()
            begin = time.perf_counter()
            model(x).square().mean().backward()
            if name == "more-data":  # who comes last waits for nobody: its own time in the job is all work
                if device == "cuda":
                    torch.cuda.synchronize()
                delay = time.perf_counter() - begin - alone
            optimizer.step()
            if step >= WARMUP and late:
                took.append(delay)
            if device == "cuda":
                torch.cuda.synchronize()
            profiler.step()
    if took:
        (folder / f"planted.rank{rank}.json").write_text(str(sorted(took)[len(took) // 2]))
    distributed.barrier()  # a gloo thread may still free the last work, and hold up the end of its group
    distributed.destroy_process_group()


def seconds_alone(model: Any, rows: int, device: str) -> float:
    """Forward and backward without the other ranks: the median of several."""
    import torch

    took = []
    for _ in range(7):
        begin = time.perf_counter()
        with model.no_sync():
            model(torch.randn(rows, WIDTH, device=device)).square().mean().backward()
        if device == "cuda":
            torch.cuda.synchronize()
        took.append(time.perf_counter() - begin)
    model.zero_grad()
    return sorted(took)[len(took) // 2]


LIBRARIES: list[Any] = []  # PyTorch forgets the operators of one that is collected


def work(x: Any, late: bool) -> Any:
    """An operator that takes `DELAY` seconds of its device when it is late."""
    if x.is_cuda:
        import torch

        torch.cuda._sleep(int(CYCLES) if late else 1000)  # one kernel that only spins
        return x.new_zeros(1)
    until = time.perf_counter() + (DELAY if late else 0.0)
    while time.perf_counter() < until:
        pass
    return x.new_zeros(1)


def slow_operator(x: Any, late: bool) -> float:
    """An operator that every rank runs on the same shape, and that takes longer on the late one; its seconds."""
    import torch

    if not LIBRARIES:
        LIBRARIES.append(torch.library.Library("planted", "DEF"))
        LIBRARIES[0].define("work(Tensor x, bool late) -> Tensor")
        LIBRARIES[0].impl("work", work, "CompositeExplicitAutograd")
    if x.is_cuda:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    torch.ops.planted.work(x, late)
    if x.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def planted(name: str, device: str) -> Callable[[int], float]:
    """Return the function that delays a step and returns its seconds; 0 for a kind whose work delays by itself."""
    import torch

    side, times = (1024, 40) if device == "cpu" else (8192, 350)  # on a GPU the launches end well before the kernels
    matrix = torch.randn(side, side, device=device)
    slow: Any = Slow()
    loader = iter(torch.utils.data.DataLoader(slow, batch_size=None))

    def timed(work: Callable[[], object]) -> Callable[[int], float]:
        def run(step: int) -> float:
            begin = time.perf_counter()
            work()
            if device == "cuda":
                torch.cuda.synchronize()
            return time.perf_counter() - begin

        return run

    def busy() -> None:
        until = time.perf_counter() + DELAY
        while time.perf_counter() < until:
            pass

    def more() -> None:
        for _ in range(times):
            matrix.sin()

    works: dict[str, Callable[[], object]] = {
        "python": busy,
        "loader": lambda: next(loader),
        "more-kernels": more,
    }
    return timed(works.get(name, lambda: time.sleep(DELAY)))


class Slow:
    """A data set whose items take `DELAY` to load."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        time.sleep(DELAY)
        return index


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank-of"]:
        rank_of(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    else:
        sys.exit(main())
