"""Data-parallel training on gloo for torchrun: rank 1 comes to the end of backward 80 ms late in every step."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    loss = model(torch.randn(32, 64)).square().mean()
    time.sleep(0.08 * dist.get_rank())
    begun = time.perf_counter()
    loss.backward()
    if dist.get_rank() == 0:
        print(f"{time.perf_counter() - begun:.6f}", flush=True)
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
