"""Measure the cost of perfkit's marks while no profiler records. A few seconds for tiny, half a minute a backend for
124M.

    python benchmarks/measuring/idle_marks.py [PRESET [BACKENDS]]      tiny by default, and eager,thunder-llmc

Must be reached: at most 1 % of a step, the upper end of the interval (0.1 % for eager tiny, the shortest step of all
built-in workloads). A step has five marks (step, zero_grad, forward, backward, optimizer); the modules' hooks are not
even installed. Thunder's traces have one more a line that computes. Marks and steps are measured in turns; what all
marks of a step cost, over the step, is printed with its bootstrap interval.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from perfkit import backends, ranges, statistics
from perfkit.workloads import find, resolve_settings

MARKS, ROUNDS, LIMIT, TINY_LIMIT = 5, 12, 0.01, 0.001


def each_ns(call: Callable[[], object], calls: int = 2000) -> float:
    """Nanoseconds of one call."""
    started = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - started) / calls


def mark() -> None:
    """One mark around nothing."""
    with ranges.in_pass("forward"):
        pass


def lines_of(program: object) -> int:
    """Return the number of marked lines of the program."""
    traces = getattr(program, "traces", None)
    if traces is None:
        return 0
    from perfkit.backends.thunder.line_ranges import count_marks

    return sum(count_marks(stages[-1]) for stages in (traces.computation, traces.backward) if stages)


def measure(preset: str, backend: str) -> bool:
    """Measure and print; return whether the limit is kept."""
    workload = find("gpt2")
    settings = resolve_settings(workload, preset=preset)
    program = backends.get(backend).prepare(workload, workload.build(settings), settings)
    program.train_step([workload.batch(settings, 0)])
    begin, go_to, _ = ranges.line_marker()
    begin("perfkit:line:forward:1:none:")
    lines = lines_of(program)
    marks, steps = [], []
    for index in range(ROUNDS):
        batch = workload.batch(settings, 1 + index)
        started = time.perf_counter_ns()
        program.train_step([batch])
        steps.append(float(time.perf_counter_ns() - started))
        marks.append(MARKS * each_ns(mark) + lines * each_ns(lambda: go_to("perfkit:line:forward:2:none:")))
    share = statistics.ratio_of_medians(marks, steps)
    limit = TINY_LIMIT if (preset, backend) == ("tiny", "eager") else LIMIT
    print(
        f"{preset} {backend}: {MARKS} marks and {lines} lines take {statistics.median(marks).value / 1e3:.1f} µs of a "
        f"step of {statistics.median(steps).value / 1e6:.1f} ms: {share.value:.4%}, 95 % interval {share.low:.4%} to "
        f"{share.high:.4%} (limit {limit:.1%})"
    )
    return share.high <= limit


def main(preset: str = "tiny", names: str = "eager,thunder-llmc") -> int:
    """Measure each backend; return 1 when a limit is missed."""
    kept = [measure(preset, name) for name in names.split(",") if backends.get(name).unavailable() is None]
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
