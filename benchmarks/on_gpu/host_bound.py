"""A host-bound training loop: 133 modules and about 575 launches a step."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

LAYERS = 44
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def training() -> tuple[torch.optim.Optimizer, Callable[[], float]]:
    """Return the optimizer, and the step, which gives its seconds with its work on the GPU."""
    torch.manual_seed(0)
    layers = [m for _ in range(LAYERS) for m in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
    model = nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    x = torch.randn(32, 64, device=DEVICE)

    def step() -> float:
        begun = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begun

    return optimizer, step
