"""A small workload whose faults can be switched on through the environment, to see what the capture makes of them."""

import contextlib
import os
import signal

import torch
from torch import nn

from perfkit import ranges
from perfkit.workloads import Workload


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.last = nn.Linear(width, 4)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, targets=None):
        if os.environ.get("SMALL_DIES") and x.dtype == torch.float32:
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ.get("SMALL_RAISES") and x.dtype == torch.float32:
            raise ValueError("the second layer\nis out of order")
        if os.environ.get("SMALL_LARGE_IN_FP64") and x.dtype == torch.float64:
            raise RuntimeError("CUDA error: out of memory")
        logits = self.last(torch.relu(self.first(x)))
        return logits, None if targets is None else self.loss(logits, targets)


class Small(Workload):
    name = "small"
    summary = "two linear layers"
    presets = {"one": {"batch_size": 32, "width": 64}}
    passes = {"classifier": ("last", "loss")}

    def build(self, settings):
        if os.environ.get("SMALL_UNMARKED"):
            ranges.step = lambda index: contextlib.nullcontext()
        torch.manual_seed(settings.seed)
        return Net(self.presets[settings.preset]["width"])

    def batch(self, settings, step):
        make = torch.Generator().manual_seed(settings.seed + step)
        x = torch.randn(settings.batch_size, 64, generator=make)
        return (x, torch.randint(0, 4, (settings.batch_size,), generator=make)) if settings.training else (x,)
