"""A plain training script of GPT-2, the model in workloads/gpt2.py (run it with the checkout on PYTHONPATH).

python gpt2.py --size gpt2 --device cuda --dtype bf16 --batch 16 --length 1024 [--compile | --graph]
"""

import argparse
import dataclasses

import torch

from workloads.gpt2 import GPT2, SIZES

parser = argparse.ArgumentParser()
parser.add_argument("--size", default="tiny", choices=SIZES)
parser.add_argument("--layers", type=int, default=0, help="fewer than the size has, for tools that are slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--compile", action="store_true", help="compile the model")
parser.add_argument("--graph", action="store_true", help="replay the whole step as one CUDA graph")
args = parser.parse_args()

dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
sizes = SIZES[args.size]
if args.layers:
    sizes = dataclasses.replace(sizes, layers=args.layers)
model = GPT2(sizes)
model.initialise(1337)
model.to(args.device, dtype)
call = torch.compile(model, dynamic=False) if args.compile else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, capturable=args.graph)
generator = torch.Generator().manual_seed(1337)


def batch():
    tokens = torch.randint(sizes.vocabulary, (args.batch, args.length + 1), generator=generator)
    return tokens[:, :-1].contiguous().to(args.device), tokens[:, 1:].contiguous().to(args.device)


def train(idx, targets):
    optimizer.zero_grad(set_to_none=True)
    _, loss = call(idx, targets)
    loss.backward()
    optimizer.step()
    return loss


if args.graph:
    idx, targets = batch()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            train(idx, targets)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_loss = train(idx, targets)

for step in range(args.steps):
    fresh = batch()
    if args.graph:
        idx.copy_(fresh[0])
        targets.copy_(fresh[1])
        graph.replay()
        loss = static_loss
    else:
        loss = train(*fresh)
    print(f"step {step} loss {loss.item():.6f}", flush=True)
