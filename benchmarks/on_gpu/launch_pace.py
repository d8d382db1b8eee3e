"""Steps of 400 launches of a small Triton kernel, each timed by the host; medians before and after a recording.

    python launch_pace.py FILE

Steps 5 to 29 lie before the recording of `perfkit capture --warmup 30`, those from 60 on after it. The medians, in µs a
launch, go to FILE as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch
import triton
import triton.language as tl
from torch import nn

LAUNCHES, STEPS = 400, 260
SPANS = {"before": slice(5, 29), "after": slice(60, None)}


@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


class Step(nn.Module):
    """Launches the kernel over and over."""

    def __init__(self) -> None:
        super().__init__()
        self.count = nn.Parameter(torch.zeros(1024))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add one to each of the N values of `x`, LAUNCHES times."""
        for _ in range(LAUNCHES):
            add_one[(1,)](x, x.numel(), BLOCK=1024)
        return x


def main() -> None:
    """Run the steps, and write the medians."""
    model, x, steps = Step().cuda(), torch.zeros(1024, device="cuda"), []
    with torch.no_grad():
        for _ in range(STEPS):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            model(x)
            steps.append(time.perf_counter() - begun)
            torch.cuda.synchronize()
    assert float(x[0]) == STEPS * LAUNCHES
    with open(sys.argv[1], "w") as file:
        json.dump({name: statistics.median(steps[span]) / LAUNCHES * 1e6 for name, span in SPANS.items()}, file)


main()
