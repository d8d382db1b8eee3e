"""A host-bound training loop on a GPU, each step next to a fixed piece of Python that shows the host's pace.

Prints on stderr `RESULT`, the variable VARIANT, and for the steps before and after a recording of 3 steps after 10:
median of the step and of the piece in ms, and of their ratio.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time

import torch
from torch import nn

LAYERS, STEPS, PIECE = 44, 200, 40_000
SPANS = {"before": slice(4, 10), "after": slice(30, None)}


def piece() -> float:
    """Return the seconds that a fixed number of additions takes."""
    begun, total = time.perf_counter(), 0
    for i in range(PIECE):
        total += i
    return time.perf_counter() - begun


def main() -> None:
    """Train, and print the medians."""
    torch.manual_seed(0)
    layers = [m for _ in range(LAYERS) for m in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    x = torch.randn(32, 64, device="cuda")
    steps, pieces = [], []
    for _ in range(STEPS):
        before = piece()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
        steps.append(time.perf_counter() - begun)
        pieces.append((before + piece()) / 2)
    found = {}
    for name, span in SPANS.items():
        ratios = [step / one for step, one in zip(steps[span], pieces[span], strict=True)]
        found[name] = [statistics.median(steps[span]) * 1e3, statistics.median(pieces[span]) * 1e3]
        found[name] = [round(value, 3) for value in (*found[name], statistics.median(ratios))]
    print("RESULT", os.environ.get("VARIANT", ""), json.dumps(found), file=sys.stderr, flush=True)


main()
