"""Independent witnesses for `gpu_check.py`: what perfkit says of a GPU, found again in a few lines without its readers.

    python benchmarks/checking/witness.py steps WORKLOAD BACKEND OPTIONS GO      step time by CUDA events
    python benchmarks/checking/witness.py launches WORKLOAD BACKEND OPTIONS GO   one step, for ncu around this process
    python benchmarks/checking/witness.py program TRACE                          somebody's program under torch.profiler

`kernel_ns` and `launches_of_ncu` read a trace and ncu's CSV with the standard library alone. `steps` and `launches`
build a workload through perfkit's public interface and run it in a loop of their own: they build, print READY, and
begin when the file GO appears, which they remove. `program` imports nothing of perfkit.
"""

from __future__ import annotations

import csv
import gc
import gzip
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

WARMUP, STEPS = 10, 30
PATIENCE_S = 600.0  # for the file GO: a process that nobody waits for ends
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
READY, STEP_NS = "ready", "steps in ns: "
DURATION = "gpu__time_duration.sum"
UNITS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}


class Launch(NamedTuple):
    """A kernel that ran: its name in full, grid and block (six numbers), and how long it took."""

    name: str
    shape: tuple[int, ...]
    ns: float


def kernel_ns(trace: Path, mark: str) -> float:
    """Time of kernels, copies and fills of a step, in ns: the mean over the steps whose names begin with `mark`.

    An activity belongs to the step in which it was launched.
    """
    content = trace.read_bytes()
    events = json.loads(gzip.decompress(content) if trace.suffix == ".gz" else content)["traceEvents"]
    steps = [
        (e["ts"], e["ts"] + e["dur"])
        for e in events
        if e.get("cat") == "user_annotation" and e.get("ph") == "X" and e["name"].startswith(mark)
    ]
    launched = {
        e["args"]["correlation"]: e["ts"] for e in events if e.get("cat") in CALLS and "correlation" in e["args"]
    }
    sums = [0.0] * len(steps)
    for e in events:
        if e.get("cat") in ON_GPU and (at := launched.get(e["args"]["correlation"])) is not None:
            for i, (start, end) in enumerate(steps):
                sums[i] += e["dur"] * (start <= at <= end)
    return statistics.fmean(sums) * 1e3


def launches_of_ncu(text: str) -> list[Launch]:
    """The kernels in the order of their launches, of what `ncu --import REPORT --csv --page raw` prints."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    units, *rows = list(csv.DictReader(lines[first:])) or [{}]
    to_ns = UNITS[units[DURATION]] if units else 1.0
    found = []
    for row in sorted(rows, key=lambda row: int(row["ID"])):
        shape = [int(n) for which in ("Grid Size", "Block Size") for n in re.findall(r"\d+", row[which])]
        found.append(Launch(row["Kernel Name"], tuple(shape), float(row[DURATION].replace(",", "")) * to_ns))
    return found


def built(workload: str, backend: str, options: dict[str, Any]) -> tuple[Callable[[int], object], Callable[[], None]]:
    """A step of the workload on the backend, by its number, and what waits for the GPU; one step has compiled it."""
    import torch

    from perfkit import backends
    from perfkit.workloads import find, resolve_settings

    found = find(workload)
    settings = resolve_settings(found, **options)
    torch.manual_seed(settings.seed)
    model = found.build(settings).to("cuda", torch.bfloat16 if settings.dtype == "bf16" else torch.float32).train()
    program = backends.get(backend).prepare(found, model, settings)
    batches = [tuple(tensor.to("cuda") for tensor in found.batch(settings, i)) for i in range(WARMUP + STEPS)]
    program.train_step([batches[0]])
    torch.cuda.synchronize()
    return lambda i: program.train_step([batches[i]]), torch.cuda.synchronize


def await_turn(go: Path) -> None:
    """Say that this is ready, and wait until the file `go` is there. Raises `TimeoutError` when it never is."""
    print(READY, flush=True)
    until = time.monotonic() + PATIENCE_S
    while not go.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{go} did not appear.")
        time.sleep(0.02)
    go.unlink()


def time_steps(workload: str, backend: str, options: dict[str, Any], go: Path) -> None:
    """Each time it is this process's turn, time some steps by CUDA events and print their times, in ns."""
    import torch

    step, synchronize = built(workload, backend, options)
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        await_turn(go)
        times = []
        for i in range(WARMUP + STEPS):
            before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            synchronize()
            before.record()
            step(i)
            after.record()
            synchronize()
            times.append(before.elapsed_time(after) * 1e6)
        print(f"{STEP_NS}{json.dumps(times[WARMUP:])}", flush=True)


def launch_step(workload: str, backend: str, options: dict[str, Any], go: Path) -> None:
    """One step between cudaProfilerStart and cudaProfilerStop, after some that warm up."""
    import torch

    step, synchronize = built(workload, backend, options)
    for i in range(3):
        step(i)
    synchronize()
    await_turn(go)
    torch.cuda.profiler.start()
    step(3)
    synchronize()
    torch.cuda.profiler.stop()


def record_program(trace: Path) -> None:
    """Train a small convolutional network as its author would write it, with a trace of torch.profiler."""
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 10),
    ).cuda()  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(64, 3, 64, 64), torch.randint(10, (64,))
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=1, warmup=2, active=3),
        record_shapes=True,
        on_trace_ready=lambda p: p.export_chrome_trace(str(trace)),
    ) as profiler:
        for _ in range(6):
            loss = nn.functional.cross_entropy(model(images.cuda(non_blocking=True)), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
            profiler.step()


def main() -> int:
    """Be the witness that the first argument names; 2 for anything else."""
    match sys.argv[1:]:
        case ["steps", workload, backend, options, go]:
            time_steps(workload, backend, json.loads(options), Path(go))
        case ["launches", workload, backend, options, go]:
            launch_step(workload, backend, json.loads(options), Path(go))
        case ["program", trace]:
            record_program(Path(trace))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
