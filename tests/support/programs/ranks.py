"""Data-parallel training on gloo, for torchrun."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(12):
    loss = nn.functional.cross_entropy(model(torch.randn(512, 128)), torch.randint(4, (512,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
total = sum(p.double().sum().item() for p in model.parameters())
if dist.get_rank() == 0:
    print(f"{total:.12f}")
dist.barrier()  # gloo may abort a rank that leaves while another still talks to it
dist.destroy_process_group()
