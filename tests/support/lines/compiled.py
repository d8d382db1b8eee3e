"""A model that is compiled: each line of its blocks is some kernels, forwards and backwards."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        hidden = self.up(x)  # up
        hidden = F.gelu(hidden)  # gelu
        return x + self.down(hidden)  # down


torch.manual_seed(0)
model = nn.Sequential(Block(), Block())
fast = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    loss = fast(torch.randn(256, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
