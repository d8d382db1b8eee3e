"""A host-bound training loop on a GPU; medians of its steps before and after a recording of 3 steps after 10.

    python paced_steps.py FILE

The medians go to FILE as JSON, in ms: of the steps up to the end of their work on the GPU, and of the host's part, up to
the last launch.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch
from torch import nn

LAYERS, STEPS = 44, 200
SPANS = {"before": slice(4, 10), "after": slice(30, None)}


def main() -> None:
    """Train, and write the medians."""
    torch.manual_seed(0)
    layers = [m for _ in range(LAYERS) for m in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    x = torch.randn(32, 64, device="cuda")
    steps, host = [], []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        launched = time.perf_counter()
        torch.cuda.synchronize()
        steps.append(time.perf_counter() - begun)
        host.append(launched - begun)
    found = {
        name: {"step": statistics.median(steps[span]) * 1e3, "host": statistics.median(host[span]) * 1e3}
        for name, span in SPANS.items()
    }
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)


main()
