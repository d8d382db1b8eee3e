"""A host-bound training loop on a GPU: `python paced_steps.py FILE`, twice at a time (`beside.py`)."""

from __future__ import annotations

import time

import torch
from torch import nn

from benchmarks.on_gpu import beside

LAYERS = 44
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    layers = [m for _ in range(LAYERS) for m in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
    model = nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    x = torch.randn(32, 64, device=DEVICE)

    def step() -> float:
        """Return the seconds of a step, with its work on the GPU."""
        begun = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begun

    step()
    beside.run(step)


main()
