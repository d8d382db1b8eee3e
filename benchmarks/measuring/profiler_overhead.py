"""Measure and explain what torch.profiler adds to a step: steps under it and right before, in fresh processes.

    python benchmarks/measuring/profiler_overhead.py [PRESET [BACKENDS]]   gpt2 by default, and eager,thunder-llmc

It reports; nothing is engineered to make the overhead small. A minute a profile, eight profiles a backend, the backends
in turns. A process profiles once, as that of `perfkit run` does: a second profile finds the heap as the first left it,
and says nothing of a first one. The overhead of a process is the median of its profiled steps over the median of its
plain ones, and that of a backend the centre of its processes' (`perfkit.statistics.ranks`): the machine's pace may
change between two processes, which medians over all steps at once would attribute to the profiler.

It also prints what explains an overhead: events a step, the time to record them, new
pages that a step touches (minor faults) with and without the profiler, and by how much the process grows.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from perfkit import backends, statistics, timing
from perfkit.capture import profile
from perfkit.statistics import ranks
from perfkit.workloads import find, resolve_settings

PROCESSES, STEPS = 8, 4
AVERAGED = ("plain_pages", "profiled_pages", "grown_mb", "events", "events_ns")
MARK = "measured: "


def faults() -> int:
    """Pages that this process has touched for the first time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def measure_once(preset: str, backend: str) -> dict[str, Any]:
    """Steps without the profiler, then steps under it, in this process: ns and new pages of both."""
    workload = find("gpt2")
    settings = resolve_settings(workload, preset=preset)
    program = backends.get(backend).prepare(workload, workload.build(settings), settings)
    batches = [(workload.batch(settings, i),) for i in range(STEPS + 1)]
    with timing.collector_off():
        for batch in batches:
            program.train_step(batch)
        before, plain = faults(), []
        for batch in batches[1:]:
            started = time.perf_counter_ns()
            program.train_step(batch)
            plain.append(time.perf_counter_ns() - started)
    plain_pages = (faults() - before) / STEPS
    resident = resident_mb()
    recorder = profile.Recorder(program, settings, lambda i: program.train_step(batches[i]))
    recorder.start()
    before = faults()
    recorder.steps(STEPS)
    pages, grown = (faults() - before) / STEPS, resident_mb() - resident
    recording = recorder.finish()
    events = recording.trace.read_bytes().count(b'"ph": "X"') / STEPS
    return {
        "plain_ns": plain, "profiled_ns": recording.step_ns, "plain_pages": plain_pages, "profiled_pages": pages,
        "grown_mb": grown, "events": events, "events_ns": events * recording.event_cost_ns,
    }  # fmt: skip


def in_fresh_process(*arguments: str) -> dict[str, Any]:
    """`measure_once` in a process of its own."""
    command = [sys.executable, __file__, "--once", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith(MARK))
    found: dict[str, Any] = json.loads(line.removeprefix(MARK))
    return found


def overhead(found: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Return the relative overhead of profiled steps over plain ones, and its 95 % interval over the processes."""
    medians = [[statistics.median(one[name]).value for name in ("profiled_ns", "plain_ns")] for one in found]
    shift = ranks.paired([math.log(profiled / plain) for profiled, plain in medians])
    value, low, high = (math.exp(log) - 1 for log in (shift.value, shift.low, shift.high))
    return value, low, high


def report(backend: str, found: list[dict[str, Any]]) -> None:
    """Print what was found of one backend."""
    step = statistics.median([ns for one in found for ns in one["plain_ns"]]).value
    value, low, high = overhead(found)
    mean = {name: sum(one[name] for one in found) / len(found) for name in AVERAGED}
    print(
        f"{backend}: step {step / 1e6:.0f} ms, profiled {value:+.1%} (95 % interval {low:+.1%} to "
        f"{high:+.1%}); {mean['events']:.0f} events a step, which account for {mean['events_ns'] / step:.1%}; new "
        f"pages a step {mean['plain_pages']:.0f} without, {mean['profiled_pages']:.0f} with the profiler; resident "
        f"{mean['grown_mb']:+.0f} MB"
    )
    each = (f"{overhead([one])[0]:+.1%}" for one in found)
    print(f"    process by process: {', '.join(each)}", flush=True)


def main(preset: str = "gpt2", names: str = "eager,thunder-llmc") -> None:
    """Measure each backend, processes in turns."""
    usable = [name for name in names.split(",") if backends.get(name).unavailable() is None]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in usable}
    for _ in range(PROCESSES):
        for backend, results in found.items():
            results.append(in_fresh_process(preset, backend))
    for backend, results in found.items():
        report(backend, results)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--once"]:
        print(MARK + json.dumps(measure_once(*sys.argv[2:4])))
    else:
        main(*sys.argv[1:])
