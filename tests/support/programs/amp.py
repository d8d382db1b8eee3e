"""Mixed precision with a GradScaler, whose first steps overflow and are left out."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler(device, init_scale=2.0**40, growth_interval=100)

for step in range(24):
    x, y = torch.randn(256, 64, device=device), torch.randint(10, (256,), device=device)
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16 if device == "cuda" else torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(f"step {step} loss {loss.item():.10f} scale {scaler.get_scale():g}")
