"""Launches of a small Triton kernel: `python launch_pace.py FILE`, twice at a time (`beside.py`).

A step is 400 launches, which the host makes ahead of the GPU; its time is the host's.
"""

from __future__ import annotations

import time

import torch
import triton
import triton.language as tl
from torch import nn

from benchmarks.on_gpu import beside

LAUNCHES = 400


@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


class Launches(nn.Module):
    """Launches the kernel over and over."""

    def __init__(self) -> None:
        super().__init__()
        self.count = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add one to each of the N values of `x`, LAUNCHES times."""
        for _ in range(LAUNCHES):
            add_one[(1,)](x, x.numel(), BLOCK=1024)
        return x


def main() -> None:
    """Launch."""
    model, x = Launches().cuda(), torch.zeros(1024, device="cuda")

    @torch.no_grad()
    def step() -> float:
        """Return the seconds of the launches."""
        torch.cuda.synchronize()
        begun = time.perf_counter()
        model(x)
        return time.perf_counter() - begun

    step()
    beside.run(step)


main()
