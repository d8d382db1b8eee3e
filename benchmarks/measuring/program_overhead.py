"""Measure what `perfkit capture` and `perfkit.profile` leave in a program: steps after the recording, and ranges.

    python benchmarks/measuring/program_overhead.py [--turns 30]

Two processes train the same GPT-2 (tiny, one thread), one of them under `perfkit capture`. When its steps are recorded,
both take steps in turns, so that what else the machine does meets both alike; the overhead is that of the turns' pairs
(`perfkit.statistics.ranks`). Limit: 1 % of a step. What is left in torch is also listed and timed by itself: calls of
an optimizer that has nothing to do, with and without the wrapper that its class keeps. Last, what `perfkit.range` and
`step()` of a `perfkit.profile` cost while nothing records. Limit of each: 0.1 % of a step. Exit code 1 over a limit.
Two minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perfkit
from perfkit.capture import launched
from perfkit.programs.order import ORDER, Order, read_results, write
from perfkit.statistics import ranks

ROOT = Path(__file__).resolve().parents[2]
ORDERED = Order(warmup=4, steps=2)
BEFORE, A_TURN = 12, 3  # steps until everything is recorded, and steps of a turn
AFTER, IDLE = 0.01, 0.001  # limits: parts of a step


def child() -> None:
    """Train; a line of the input asks for that many steps, and gets their times in ns as JSON; none ends."""
    import torch

    from workloads.gpt2 import GPT2, SIZES

    sizes = SIZES["tiny"]
    torch.manual_seed(0)
    model = GPT2(sizes)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(sizes.vocabulary, (4, 65))

    def step() -> int:
        started = time.perf_counter_ns()
        _, loss = model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return time.perf_counter_ns() - started

    for line in sys.stdin:
        print(json.dumps([step() for _ in range(int(line))]), flush=True)
    print(json.dumps(left_behind(optimizer)), flush=True)


def left_behind(optimizer: Any) -> dict[str, Any]:
    """Functions of torch that are still perfkit's, and what the optimizer's wrapper costs a call, in ns."""
    import torch

    places = {
        "Module.__call__": torch.nn.Module.__call__,
        "autograd.backward": torch.autograd.backward,
        "Optimizer.zero_grad": torch.optim.Optimizer.zero_grad,
        "Optimizer.profile_hook_step": torch.optim.Optimizer.profile_hook_step,
        "GradScaler.step": torch.amp.GradScaler.step,
        "CUDAGraph.replay": torch.cuda.CUDAGraph.replay,
        "profile.step": torch.profiler.profile.step,
        f"{type(optimizer).__name__}.step": type(optimizer).step,
    }
    kept = [
        name for name, function in places.items() if function.__code__.co_filename.startswith(str(ROOT / "perfkit"))
    ]
    outer = type(optimizer).step
    idle = type(optimizer)([torch.zeros(1, requires_grad=True)])
    return {"kept": kept, "step_ns": difference(lambda: outer(idle), lambda: outer.__wrapped__(idle)) if kept else 0.0}


def difference(more: Callable[[], Any], less: Callable[[], Any], calls: int = 2000, repeats: int = 15) -> float:
    """Return how much longer a call of `more` takes than one of `less`, in ns: the best of `repeats` each, in turns."""
    pairs = [(timeit.timeit(more, number=calls), timeit.timeit(less, number=calls)) for _ in range(repeats)]
    return (min(one for one, _ in pairs) - min(other for _, other in pairs)) / calls * 1e9


class Trainer:
    """One of the two processes."""

    def __init__(self, armed_in: Path | None) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        if armed_in is not None:
            write(armed_in, ORDER, ORDERED)
            environment = launched.environment(armed_in / ORDER, environment)
        command = [sys.executable, str(Path(__file__).resolve()), "--child"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def steps(self, count: int) -> list[int]:
        """Times of `count` steps, in ns."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        times: list[int] = self._answer()
        return times

    def end(self) -> dict[str, Any]:
        """End the process and return what was left in it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        left: dict[str, Any] = self._answer()
        self._process.wait()
        return left

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("The program ended early.")
        return json.loads(line)


def after_recording(turns: int) -> tuple[float, float, float, float, dict[str, Any]]:
    """Overhead of a step with its interval, the plain step in ns, and what was left behind."""
    with tempfile.TemporaryDirectory() as scratch:
        trainers = Trainer(None), Trainer(Path(scratch))
        for one in trainers:
            one.steps(BEFORE)
        ((_, result),) = read_results(Path(scratch))
        assert len(result.step_ns) == ORDERED.steps, result.problem
        logs, plain_ns = [], []
        for turn in range(turns):
            first = turn % 2
            times = {which: statistics.median(trainers[which].steps(A_TURN)) for which in (first, 1 - first)}
            logs.append(math.log(times[1] / times[0]))
            plain_ns.append(times[0])
        left = [one.end() for one in trainers]
    shift = ranks.paired(logs)
    centre, low, high = (math.expm1(value) for value in (shift.value, shift.low, shift.high))
    return centre, low, high, statistics.median(plain_ns), left[1]


def idle_calls() -> dict[str, float]:
    """Return the cost of the library's own calls while nothing records, in ns a call, torch loaded."""
    import torch  # noqa: F401

    profile = perfkit.profile()

    def ranged() -> None:
        with perfkit.range("loss"):
            pass

    def nothing() -> None:
        pass

    return {"with perfkit.range(…)": difference(ranged, nothing), "p.step()": difference(profile.step, nothing)}


def main() -> int:
    """Measure and print; 1 over a limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=30, help="pairs of turns")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child()
        return 0
    centre, low, high, step_ns, left = after_recording(arguments.turns)
    print(f"a step without perfkit                 {step_ns / 1e6:8.3f} ms")
    print(f"a step after the recording             {100 * centre:+8.2f} %  ({100 * low:+.2f} to {100 * high:+.2f} %)")
    print(f"still wrapped                          {', '.join(left['kept']) or 'nothing'}")
    parts = {"the optimizer's wrapper": left["step_ns"], **idle_calls()}
    for name, ns in parts.items():
        print(f"{name:38} {ns:8.0f} ns  {100 * ns / step_ns:.4f} % of the step")
    over = low > AFTER or parts["the optimizer's wrapper"] > AFTER * step_ns
    return int(over or any(ns > IDLE * step_ns for name, ns in parts.items() if "wrapper" not in name))


if __name__ == "__main__":
    sys.exit(main())
