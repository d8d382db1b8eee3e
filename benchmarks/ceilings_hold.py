"""Check that the measured bandwidth is a ceiling for PyTorch's own operators, by working set. About half a minute.

Must be reached: no operator above 1.15 times its ceiling on a quiet machine. The ceilings are measured first, then add,
multiply, copy and an operator in place run over each working set, best of 30.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import torch

from perfkit.hardware.store import load_or_measure

LIMIT, TRIES = 1.15, 30


def operators(working_set: int) -> Iterator[tuple[str, Callable[[], object], float, bool]]:
    """Name, call, bytes moved, and whether in place, of operators that touch `working_set` bytes."""
    a, b, c = (torch.ones(working_set // 12) for _ in range(3))
    x, y = (torch.ones(working_set // 8) for _ in range(2))
    s = torch.ones(working_set // 4)
    yield "add", lambda: torch.add(a, b, out=c), 12.0 * a.numel(), False
    yield "mul", lambda: torch.mul(a, b, out=c), 12.0 * a.numel(), False
    yield "copy", lambda: x.copy_(y), 8.0 * x.numel(), False
    yield "neg_", lambda: s.neg_(), 8.0 * s.numel(), True


def best_seconds(call: Callable[[], object]) -> float:
    """The shortest of `TRIES` calls."""
    times = []
    for _ in range(TRIES):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> int:
    """Measure and print; 1 when an operator beats its ceiling."""
    ceilings = load_or_measure(refresh=True, progress=lambda text: print(f"  {text}", file=sys.stderr))
    print(f"{'working set':>12} " + " ".join(f"{name:>7}" for name in ("add", "mul", "copy", "neg_")))
    worst = 0.0
    for size, _ in ceilings.bandwidth:
        shares = []
        for _name, call, moved, in_place in operators(int(size)):
            roof = ceilings.bandwidth_for(size, in_place).value
            shares.append(moved / best_seconds(call) / roof)
        worst = max(worst, *shares)
        print(f"{size / 2**20:8.2f} MiB " + " ".join(f"{share:7.0%}" for share in shares))
    print(f"highest {worst:.0%} of the ceiling (limit {LIMIT:.0%})")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
