"""torch.compile around a model."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))
fast = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(12):
    x, y = torch.randn(256, 32), torch.randint(4, (256,))
    loss = nn.functional.cross_entropy(fast(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item():.10f}")
