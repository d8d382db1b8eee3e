"""Independent witnesses for `gpu_check.py`: what perfkit says of a GPU, found again in a few lines without its readers.

    python benchmarks/gpu_witness.py steps WORKLOAD BACKEND SETTINGS   step times by CUDA events, after a line on stdin
    python benchmarks/gpu_witness.py program TRACE                     any program under torch.profiler

`kernel_ns` reads a trace with the json module alone. `steps` builds a workload through perfkit's public interface, and
measures in a loop of its own. `program` imports nothing of perfkit.
"""

from __future__ import annotations

import gc
import gzip
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TURN, PAIRS = 4, 30  # steps of a turn, and how many turns each loop has
POWER_S = 2.0  # for which steps run while their power is measured: the energy counter moves ten times a second
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
READY, TIMES = "ready", "times in ns: "


def kernel_ns(trace: Path, mark: str) -> float:
    """Time of kernels, copies and fills of a step, in ns: the mean over the steps whose names begin with `mark`.

    An activity belongs to the step in which it was launched.
    """
    content = trace.read_bytes()
    events = json.loads(gzip.decompress(content) if trace.suffix == ".gz" else content)["traceEvents"]
    steps = [
        (e["ts"], e["ts"] + e["dur"])
        for e in events
        if e.get("cat") in ("user_annotation", "cpu_op") and e.get("ph") == "X" and e["name"].startswith(mark)
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


class Clock:
    """CUDA events around steps."""

    def __init__(self, step: Callable[[Any], object]) -> None:
        self._step = step
        self._marks: list[tuple[Any, Any]] = []

    def run(self, batch: Any) -> None:
        """One step, with an event before and one after it."""
        import torch

        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        self._step(batch)
        after.record()
        self._marks.append((before, after))

    def taken(self) -> list[float]:
        """How long the steps since the last call took, in ns. They must have ended."""
        times = [before.elapsed_time(after) * 1e6 for before, after in self._marks]
        self._marks.clear()
        return times


def time_steps(workload: str, backend: str, options: dict[str, Any]) -> None:
    """Build the workload on the backend, say so, and after a line on stdin print times of turns of steps, in ns.

    Steps that perfkit's measuring loop runs (`loop`: what it says, `inside`: CUDA events around the same steps) and
    steps of a loop of its own (`own`: CUDA events) take turns, A B, B A, …: a host that is slower for a while is so for
    both. Then the power of steps is measured (`watts`). The garbage collector is off, as it is while perfkit measures.
    """
    import torch

    from perfkit import backends, timing
    from perfkit.backends.interface import AutogradProgram
    from perfkit.workloads import find, resolve_settings

    found = find(workload)
    settings = resolve_settings(found, **options)
    torch.manual_seed(settings.seed)
    model = found.build(settings).to("cuda", torch.bfloat16 if settings.dtype == "bf16" else torch.float32).train()
    program = backends.get(backend).prepare(found, model, settings)
    if isinstance(program, AutogradProgram):
        program.replay_where_asked(settings)  # as a run does
    batches = [tuple(tensor.to("cuda") for tensor in found.batch(settings, i)) for i in range(TURN)]
    clock = Clock(lambda batch: program.train_step([batch]))
    times: dict[str, list[list[float]]] = {"loop": [], "inside": [], "own": []}

    def own_loop() -> None:
        gc.collect()
        for batch in batches:
            torch.cuda.synchronize()
            clock.run(batch)
            torch.cuda.synchronize()
        times["own"].append(clock.taken())

    def perfkits_loop() -> None:
        left = iter(batches)
        synchronize = timing.synchronizer("cuda")
        times["loop"].append(timing.measure(lambda: clock.run(next(left)), 0, TURN, synchronize=synchronize).ns)
        times["inside"].append(clock.taken())

    own_loop()  # compiles
    program.outputs_wanted = False  # as in a run's timed steps: nobody looks at them
    gc.collect()
    gc.freeze()
    gc.disable()
    print(READY, flush=True)
    sys.stdin.readline()
    for turn in (own_loop, perfkits_loop, own_loop):
        turn()  # settles
    for kind in times.values():
        kind.clear()
    for pair in range(PAIRS):
        for turn in (own_loop, perfkits_loop) if pair % 2 else (perfkits_loop, own_loop):
            turn()
    said = json.dumps({**times, "watts": power_of_steps(lambda: program.train_step([batches[0]]))})
    print(f"{TIMES}{said}", flush=True)


def power_of_steps(steps: Callable[[], object]) -> tuple[float | None, float]:
    """The mean draw in W while `steps` run over and over, by perfkit's watch and by the driver's energy counter."""
    import pynvml
    import torch

    from perfkit.hardware.power import Watch

    uuid = str(torch.cuda.get_device_properties(0).uuid)
    with Watch() as watch:
        device = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        start, began = pynvml.nvmlDeviceGetTotalEnergyConsumption(device), time.time()  # mJ
        while time.time() - began < POWER_S:
            steps()
            torch.cuda.synchronize()
        used, ended = pynvml.nvmlDeviceGetTotalEnergyConsumption(device) - start, time.time()
        power = watch.during(uuid, [(began, ended)])
    return power.watts if power else None, used / (ended - began) / 1e3


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
