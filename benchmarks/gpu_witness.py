"""Independent witnesses for `gpu_check.py`: what perfkit says of a GPU, found again in a few lines without its readers.

    python benchmarks/gpu_witness.py steps WORKLOAD BACKEND SETTINGS   step time by CUDA events, after a line on stdin
    python benchmarks/gpu_witness.py program TRACE                     a program of somebody else under torch.profiler

`kernel_ns` reads a trace with the json module alone. `steps` builds a workload through perfkit's public interface, and
measures in a loop of its own. `program` imports nothing of perfkit.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from pathlib import Path
from typing import Any

TURN, TURNS = 10, 4  # steps of a turn; four turns, there and back, this many times
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
READY, STEP_NS = "ready", "step_ns: "


def kernel_ns(trace: Path, mark: str) -> float:
    """Time of kernels, copies and fills of a step, in ns: the median over the steps whose names begin with `mark`.

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
    return statistics.median(sums) * 1e3


def time_steps(workload: str, backend: str, options: dict[str, Any]) -> None:
    """Build the workload on the backend, say so, and after a line on stdin print two medians of a step in ns.

    The first is by CUDA events, the second by the loop that `perfkit run` measures with; both in turns.
    """
    import torch

    from perfkit import backends, timing
    from perfkit.workloads import find, resolve_settings

    found = find(workload)
    settings = resolve_settings(found, **options)
    torch.manual_seed(settings.seed)
    model = found.build(settings).to("cuda", torch.bfloat16 if settings.dtype == "bf16" else torch.float32).train()
    program = backends.get(backend).prepare(found, model, settings)
    batches = [tuple(tensor.to("cuda") for tensor in found.batch(settings, i)) for i in range(TURN)]

    def by_events() -> list[float]:
        times = []
        for batch in batches:
            before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            before.record()
            program.train_step([batch])
            after.record()
            torch.cuda.synchronize()
            times.append(before.elapsed_time(after) * 1e6)
        return times

    def by_perfkit() -> list[float]:
        left = iter(batches)
        synchronize = timing.synchronizer("cuda")
        return timing.measure(lambda: program.train_step([next(left)]), 0, TURN, synchronize=synchronize).ns

    by_events()  # compiles, and settles
    print(READY, flush=True)
    sys.stdin.readline()
    by_events()
    events, loop = [], []
    for _ in range(TURNS):
        events += by_events()
        loop += by_perfkit()
        loop += by_perfkit()
        events += by_events()
    print(f"{STEP_NS}{json.dumps([statistics.median(events), statistics.median(loop)])}", flush=True)


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
        case ["steps", workload, backend, options]:
            time_steps(workload, backend, json.loads(options))
        case ["program", trace]:
            record_program(Path(trace))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
