"""What perfkit's range marks cost while nobody listens. A few seconds.

Must be reached: less than 0.1 % of a GPT-2 tiny step on eager, the shortest step of all built-in workloads. A step has
five marks (step, zero_grad, forward, backward, optimizer); the modules' hooks are not even installed. Marks and steps
are measured in turns, medians are printed.
"""

from __future__ import annotations

import statistics
import sys
import time

from perfkit import backends, ranges
from perfkit.workloads import find, resolve_settings

MARKS, ROUNDS, LIMIT = 5, 30, 0.001


def mark_ns(calls: int = 2000) -> float:
    """Nanoseconds of one mark around nothing."""
    started = time.perf_counter_ns()
    for _ in range(calls):
        with ranges.in_pass("forward"):
            pass
    return (time.perf_counter_ns() - started) / calls


def main() -> int:
    """Measure and print; 1 when the limit is missed."""
    workload = find("gpt2")
    settings = resolve_settings(workload, preset="tiny")
    program = backends.get("eager").prepare(workload, workload.build(settings), settings)
    marks, steps = [], []
    for index in range(ROUNDS):
        batch = workload.batch(settings, index)
        started = time.perf_counter_ns()
        program.train_step([batch])
        steps.append(time.perf_counter_ns() - started)
        marks.append(mark_ns())
    mark, step = statistics.median(marks), statistics.median(steps)
    share = MARKS * mark / step
    print(f"a mark {mark / 1e3:.2f} µs, a step {step / 1e6:.2f} ms: {MARKS} are {share:.3%} of it (limit {LIMIT:.1%})")
    return int(share > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
