"""Gradient accumulation, with an evaluation every few steps."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
criterion = nn.CrossEntropyLoss()
held_out = torch.randn(512, 32), torch.randint(8, (512,))

for step in range(12):
    total = 0.0
    for _ in range(4):
        x, y = torch.randn(128, 32), torch.randint(8, (128,))
        loss = criterion(model(x), y) / 4
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    if step % 5 == 4:
        model.eval()
        with torch.no_grad():
            accuracy = (model(held_out[0]).argmax(1) == held_out[1]).float().mean()
        model.train()
        print(f"step {step} accuracy {accuracy.item():.6f}")
    print(f"step {step} loss {total:.10f}")
