"""A model with activation checkpointing whose backward pass runs in another thread, as on a GPU.

reentrant: the older way of checkpointing, in which a node of autograd runs the forward pass again.
"""

import sys
import threading

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

REENTRANT = "reentrant" in sys.argv[1:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        hidden = self.up(x)  # up
        hidden = F.gelu(hidden)  # gelu
        return x + self.down(hidden)  # down


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.h = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        x = self.first(x)
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=REENTRANT)
        return x


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(14):
    loss = model(torch.randn(256, 64)).square().mean()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    optimizer.step()
    optimizer.zero_grad()
