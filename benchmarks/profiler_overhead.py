"""What torch.profiler adds to a step, and why: steps with and without it in turns, in one process a backend.

    python benchmarks/profiler_overhead.py [PRESET [BACKENDS]]     gpt2 (124M) by default, and eager,thunder-llmc

Must be reached: at most 15 % of a GPT-2 124M step with the settings that `perfkit run` profiles with. About a minute
a backend and setting on an idle machine. Besides the overhead with its bootstrap interval it prints what explains one:
events a step, the time that recording so many events takes by itself, new pages that a step touches (minor faults) with
and without the profiler, and by how much the process grows. Without the room that `perfkit run` makes on the heap
(`perfkit.capture.heap`) what the profiler keeps breaks the heap's free blocks, and tensors land on fresh pages: the
setting "no room" shows it.
"""

from __future__ import annotations

import contextlib
import gc
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from perfkit import backends, ranges, statistics
from perfkit.capture import heap
from perfkit.capture.profile import event_cost_ns
from perfkit.workloads import find, resolve_settings

LIMIT, SESSIONS, STEPS = 0.15, 4, 3
# Whether shapes are recorded, and whether there is room on the heap.
SETTINGS = {"as perfkit run": (True, True), "no room": (True, False), "no shapes": (False, True)}


class Stepper:
    """Runs steps of a program and counts their time and page faults."""

    def __init__(self, preset: str, backend: str) -> None:
        self.workload = find("gpt2")
        self.settings = resolve_settings(self.workload, preset=preset)
        model = self.workload.build(self.settings)
        self.program = backends.get(backend).prepare(self.workload, model, self.settings)
        self._next = 0

    def step(self) -> tuple[float, int]:
        """One step: ns and minor faults."""
        batch = self.workload.batch(self.settings, self._next)
        self._next += 1
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter_ns()
        self.program.train_step([batch])
        ns = float(time.perf_counter_ns() - started)
        return ns, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    def steps(self, count: int) -> list[tuple[float, int]]:
        return [self.step() for _ in range(count)]


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def profiled(stepper: Stepper, shapes: bool, room: bool) -> tuple[list[tuple[float, int]], int]:
    """Steps under the profiler, as `perfkit run` profiles, and the number of events of all."""
    program: Any = stepper.program
    marked = ranges.modules_marked(program.model) if program.keeps_modules else contextlib.nullcontext()
    window = schedule(wait=0, warmup=1, active=1_000_000)
    with (
        heap.with_room("cpu") if room else contextlib.nullcontext(),
        profile(activities=[ProfilerActivity.CPU], schedule=window, record_shapes=shapes, acc_events=True) as profiler,
        marked,
    ):
        stepper.step()
        profiler.step()
        found = stepper.steps(STEPS)
    events = len(profiler.profiler.kineto_results.events()) if profiler.profiler else 0
    return found, events


def measure(stepper: Stepper, backend: str, name: str, shapes: bool, room: bool) -> statistics.Estimate:
    """Sessions with the profiler between steps without it; prints a line."""
    plain, with_profiler, events = [], [], 0
    gc.collect()
    gc.disable()
    grown = resident_mb()
    for _ in range(SESSIONS):
        stepper.step()  # the session before left the heap to the profiler's records
        plain += stepper.steps(STEPS)
        found, events = profiled(stepper, shapes, room)
        with_profiler += found
    gc.enable()
    grown = resident_mb() - grown
    overhead = statistics.ratio_of_medians([ns for ns, _ in with_profiler], [ns for ns, _ in plain])
    faults = [sum(f for _, f in some) / len(some) for some in (plain, with_profiler)]
    step = statistics.median([ns for ns, _ in plain]).value
    recorded = events / STEPS * event_cost_ns() / step
    print(
        f"{backend}, {name}: step {step / 1e6:.0f} ms, profiled {overhead.value - 1:+.1%} (95 % interval "
        f"{overhead.low - 1:+.1%} to {overhead.high - 1:+.1%}); {events / STEPS:.0f} events a step, which account for "
        f"{recorded:.1%}; new pages a step {faults[0]:.0f} without, {faults[1]:.0f} with the profiler; resident "
        f"{grown:+.0f} MB",
        flush=True,
    )
    return overhead


def main(preset: str = "gpt2", names: str = "eager,thunder-llmc") -> int:
    """Measure each backend with each setting; 1 when the first setting misses the limit."""
    missed = False
    for backend in [name for name in names.split(",") if backends.get(name).unavailable() is None]:
        stepper = Stepper(preset, backend)
        stepper.steps(3)
        found = [measure(stepper, backend, name, *options) for name, options in SETTINGS.items()]
        missed = missed or found[0].value - 1 > LIMIT
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; limit {LIMIT:.0%}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
