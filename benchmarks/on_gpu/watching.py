"""What perfkit's wrappers add to a step while it watches, in one process: its wrappers and torch's own in turns.

    PYTHONPATH=$PWD perfkit capture --warmup 100000 --steps 3 --out /tmp/watched -- python benchmarks/on_gpu/watching.py

Nothing is recorded: 2,700 steps of the loop of paced_steps.py end in the warm-up. Nine steps with the wrappers and nine
with what they wrap take turns, in an order that turns as well; the first two of nine, which fill Python's caches anew,
do not count. Printed are the medians and their ratio with its 95 % interval; limit 1.03. Processes differ by
several per cent from one to the next, so two of them next to each other (paced_steps.sh) show less.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

import torch
from torch import nn

from benchmarks.on_gpu import host_bound

BLOCKS, STEPS, COLD, LIMIT = 150, 9, 2, 1.03


def unwrapped(function: Any) -> Any:
    """Return what the wrappers of perfkit wrap."""
    while "perfkit" in function.__code__.co_filename.replace("\\", "/").split("/"):
        function = function.__wrapped__
    return function


def main() -> int:
    """Train; exit code 1 where the wrappers take more than the limit."""
    optimizer, step = host_bound.training()
    for _ in range(30):
        step()
    places: list[tuple[Any, str]] = [(nn.Module, "__call__"), (nn.Module, "_wrapped_call_impl")]
    places += [(torch.optim.Optimizer, "zero_grad"), (torch.autograd, "backward"), (type(optimizer), "step")]
    watching = [(owner, name, getattr(owner, name)) for owner, name in places]
    bare = [(owner, name, unwrapped(function)) for owner, name, function in watching]
    if any(one[2] is other[2] for one, other in zip(watching, bare, strict=True)):
        print("watching.py: perfkit does not watch here. Run it under `perfkit capture`.", file=sys.stderr)
        return 2
    medians: dict[str, list[float]] = {"with": [], "without": []}
    for turn in range(BLOCKS):
        sides = (("with", watching), ("without", bare))
        for name, functions in sides if turn % 2 else sides[::-1]:
            for owner, attribute, function in functions:
                setattr(owner, attribute, function)
            medians[name].append(statistics.median([step() for _ in range(STEPS)][COLD:]))
    ratios = sorted(one / other for one, other in zip(medians["with"], medians["without"], strict=True))
    middle, half = len(ratios) / 2, 0.98 * len(ratios) ** 0.5
    ratio, low, high = statistics.median(ratios), ratios[int(middle - half)], ratios[int(middle + half)]
    times = " and ".join(f"{statistics.median(each) * 1e3:.3f} ms {name}" for name, each in medians.items())
    verdict = "OK  " if ratio <= LIMIT else "FAIL"
    print(f"{verdict} watching: {times}: {ratio:.4f} ({low:.4f} to {high:.4f}; limit {LIMIT})")
    return int(ratio > LIMIT)


sys.exit(main())
