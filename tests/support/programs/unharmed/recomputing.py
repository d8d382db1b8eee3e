"""Activation checkpointing: python recomputing.py reentrant|plain|nested|selective|offloaded"""

import sys

import torch
from torch import nn
from torch.utils import checkpoint as checkpointing

STEPS = 36
torch.set_num_threads(1)
torch.manual_seed(0)
counts = {"block": 0}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.drop, self.down = nn.Linear(width, 2 * width), nn.Dropout(0.1), nn.Linear(2 * width, width)

    def forward(self, x):
        counts["block"] += 1
        return x + self.down(self.drop(torch.relu(self.up(x))))


blocks = nn.ModuleList(Block(16) for _ in range(3))
optimizer = torch.optim.AdamW(blocks.parameters(), lr=0.01)


def selected(_context, operator, *_arguments, **_named):
    counts[str(operator)] = counts.get(str(operator), 0) + 1
    keep = operator == torch.ops.aten.addmm.default
    return checkpointing.CheckpointPolicy.MUST_SAVE if keep else checkpointing.CheckpointPolicy.PREFER_RECOMPUTE


def forward(kind, x):
    def through(first, x):
        for block in blocks[first:]:
            x = block(x)
        return x

    if kind == "nested":

        def two(x):
            return checkpointing.checkpoint(blocks[2], blocks[1](x), use_reentrant=False)

        return checkpointing.checkpoint(two, blocks[0](x), use_reentrant=False)
    if kind == "selective":
        contexts = lambda: checkpointing.create_selective_checkpoint_contexts(selected)  # noqa: E731
        return checkpointing.checkpoint(lambda x: through(0, x), x, use_reentrant=False, context_fn=contexts)
    if kind == "offloaded":
        with torch.autograd.graph.save_on_cpu():
            return through(0, x)
    return checkpointing.checkpoint(lambda x: through(0, x), x, use_reentrant=kind == "reentrant")


numbers = torch.Generator().manual_seed(4)
for number in range(STEPS):
    x = torch.randn(8, 16, generator=numbers).requires_grad_()
    loss = forward(sys.argv[1], x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(number, f"{loss.item():.8f} {x.grad.sum().item():.7f}")
print(sorted(counts.items()))
