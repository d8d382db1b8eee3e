"""What torch.profiler adds to a step, and why: steps under it and steps right before, in fresh processes.

    python benchmarks/profiler_overhead.py [PRESET [BACKENDS]]     gpt2 (124M) by default, and eager,thunder-llmc
    python benchmarks/profiler_overhead.py PRESET BACKENDS room    and once more with room on the heap

Must be reached: at most 15 % of a GPT-2 124M step as `perfkit run` profiles it. A minute a profile, eight profiles a
backend, the backends in turns. A process profiles once, as that of `perfkit run` does: a second profile finds the heap
as the first left it, and says nothing of a first one. The overhead of a process is the median of its profiled steps
over the median of its plain ones, and that of a backend the centre of its processes' (`perfkit.statistics.ranks`): the
machine's pace may change between two processes, which medians over all steps at once would lay to the profiler.

Besides it prints what explains an overhead: events a step, the time that recording so many events takes by itself, new
pages that a step touches (minor faults) with and without the profiler, and by how much the process grows. With "room"
there is room on the heap whatever a step takes (`perfkit.capture.heap`), which `perfkit run` makes only for steps that
touch few new pages: where they touch many it shows what the profile would miss. A backend whose tensors lie apart from
the heap (thunder-llmc) gets no room in either.
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

LIMIT, PROCESSES, STEPS = 0.15, 8, 4
AS_RUN, WITH_ROOM = "as perfkit run", "room in any case"
AVERAGED = ("plain_pages", "profiled_pages", "grown_mb", "events", "events_ns")
MARK = "measured: "


def faults() -> int:
    """Pages that this process has touched for the first time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def measure_once(preset: str, backend: str, setting: str) -> dict[str, Any]:
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
    fresh = plain_pages * resource.getpagesize() if setting == AS_RUN else 0.0
    recorder = profile.Recorder(program, settings, lambda i: program.train_step(batches[i]), fresh_bytes=fresh)
    recorder.start()
    before = faults()
    recorder.steps(STEPS)
    pages, grown = (faults() - before) / STEPS, resident_mb() - resident
    recording = recorder.finish()
    inner: Any = recording.profiler.profiler
    events = len(inner.kineto_results.events()) / STEPS
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
    """By how much profiled steps are longer than plain ones, as a share, and the 95 % interval over the processes."""
    medians = [[statistics.median(one[name]).value for name in ("profiled_ns", "plain_ns")] for one in found]
    shift = ranks.paired([math.log(profiled / plain) for profiled, plain in medians])
    value, low, high = (math.exp(log) - 1 for log in (shift.value, shift.low, shift.high))
    return value, low, high


def report(backend: str, setting: str, found: list[dict[str, Any]]) -> float:
    """Print a line for one backend and setting; its overhead, as a share."""
    step = statistics.median([ns for one in found for ns in one["plain_ns"]]).value
    value, low, high = overhead(found)
    mean = {name: sum(one[name] for one in found) / len(found) for name in AVERAGED}
    print(
        f"{backend}, {setting}: step {step / 1e6:.0f} ms, profiled {value:+.1%} (95 % interval {low:+.1%} to "
        f"{high:+.1%}); {mean['events']:.0f} events a step, which account for {mean['events_ns'] / step:.1%}; new "
        f"pages a step {mean['plain_pages']:.0f} without, {mean['profiled_pages']:.0f} with the profiler; resident "
        f"{mean['grown_mb']:+.0f} MB"
    )
    each = (f"{overhead([one])[0]:+.1%}" for one in found)
    print(f"    process by process: {', '.join(each)}", flush=True)
    return value


def main(preset: str = "gpt2", names: str = "eager,thunder-llmc", room: str = "") -> int:
    """Measure each backend with each setting, processes in turns; 1 when a backend misses the limit as it is run."""
    usable = [name for name in names.split(",") if backends.get(name).unavailable() is None]
    settings = [AS_RUN, WITH_ROOM] if room == "room" else [AS_RUN]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {(name, one): [] for name in usable for one in settings}
    for _ in range(PROCESSES):
        for (backend, setting), results in found.items():
            results.append(in_fresh_process(preset, backend, setting))
    overheads = {case: report(*case, results) for case, results in found.items()}
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; limit {LIMIT:.0%}")
    return int(any(value > LIMIT for (_, setting), value in overheads.items() if setting == AS_RUN))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--once"]:
        print(MARK + json.dumps(measure_once(*sys.argv[2:5])))
    else:
        sys.exit(main(*sys.argv[1:]))
