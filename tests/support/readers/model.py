"""A tiny GPT that the reader's tests profile: two blocks of explicit attention, tied head, loss as a module.

B batch, T time, C channels, NH heads, V vocabulary.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from perfkit import ranges

B, T, C, NH, V = 4, 64, 128, 4, 1000


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.register_buffer("later", torch.triu(torch.ones(T, T, dtype=torch.bool), 1))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.view(B, T, NH, C // NH).transpose(1, 2) for part in self.c_attn(x).split(C, dim=2))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(C // NH)
        weights = F.softmax(scores.masked_fill(self.later, -math.inf), dim=-1)
        return self.c_proj((weights @ v).transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(C), Attention(), nn.LayerNorm(C)
        self.mlp = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(approximate="tanh"), nn.Linear(4 * C, C))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, recompute: bool = False, layers: int = 2) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.h = nn.ModuleList(Block() for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(C), nn.Linear(C, V, bias=False)
        self.lm_head.weight = self.wte.weight
        self.loss = nn.CrossEntropyLoss()
        self.recompute = recompute

    def forward(self, idx: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        x = self.wte(idx) + self.wpe(torch.arange(T))
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, self.loss(logits.view(-1, V), targets.view(-1))


PASSES = {"encoder": ("wte", "wpe"), "classifier": ("ln_f", "lm_head", "loss")}
LAYERS = "h.*"


def capture(
    path: Path, model: GPT, call: Callable[..., Any] | None = None, steps: int = 2, accumulate: int = 1
) -> Path:
    """Profile `steps` training steps of `call` (the model itself when left out, its modules marked) into `path`."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    run = model if call is None else call
    idx, targets = torch.randint(0, V, (B, T)), torch.randint(0, V, (B, T))

    def step(index: int) -> None:
        with ranges.step(index):
            with ranges.in_pass("zero_grad"):
                optimizer.zero_grad()
            for _ in range(accumulate):
                with ranges.in_pass("forward"):
                    _, loss = run(idx, targets)
                with ranges.in_pass("backward"):
                    loss.backward()
            with ranges.in_pass("optimizer"):
                optimizer.step()

    for index in range(2):
        step(index)
    marked = ranges.modules_marked(model) if call is None else contextlib.nullcontext()
    with marked, profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for index in range(steps):
            step(index)
    profiler.export_chrome_trace(str(path))
    return path
