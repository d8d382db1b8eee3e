"""Small training programs with one costly line each, and healthy twins: python planted.py NAME [healthy].

The costly line ends with a comment `# planted`.
"""

import os
import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
NAME, HEALTHY = sys.argv[1], sys.argv[2:] == ["healthy"]
STEPS = 14
WIDTH, ROWS = (512, 512) if HEALTHY else (64, 32)  # of a healthy step most is the model
model = nn.Sequential(nn.Linear(32, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 8))
if not HEALTHY:
    model = nn.Sequential(model[0], model[1], model[4])


def batches():
    for _ in range(STEPS):
        yield torch.randn(ROWS, 32), torch.randint(8, (ROWS,))


def same(x):
    return x


def augment(x):
    if HEALTHY:
        return x * (1 + 1e-9 * x[:, 0].sum())
    total = 0.0
    for i in range(3000):
        total += x[i % 32, 0].item()  # planted
    return x * (1 + 1e-9 * total)


def metric(logits, y):
    if HEALTHY:
        return (logits.argmax(1) == y).sum()
    right = 0
    for _ in range(1500):
        right += int(logits.argmax(1).cpu()[0])  # planted
    return right


def tokens(x):
    if HEALTHY:
        return x + 1e-9 * (x * 1000).long().sum().remainder(1000003)
    score = 0
    for row in x.tolist() * 100:
        for value in row:
            score = (score * 31 + int(value * 1000)) % 1000003  # planted
    return x + 1e-9 * score


def convert(module, inputs, output):
    if HEALTHY:
        return output + 0 * output.detach()
    wide = output.detach().repeat(3000, 1)
    for _ in range(12):
        wide = wide.double().float()  # planted
    return output + 0 * wide[:32]


def tokenized(samples):
    text = []
    for x, _ in samples:
        text.append(sum(ord(c) for c in str([round(v, 3) for v in x.tolist() * 30])))  # planted
    return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])


def log(loss, logits):
    for _ in range(0 if HEALTHY else 30):
        print(logits.detach(), file=null)  # planted


def loss_of(logits, y):
    weights = torch.linspace(0.5, 1.5, 8)
    if not HEALTHY and NAME == "loss":
        for _ in range(60):
            weights = weights.repeat(40000).view(-1, 8)[0]  # planted
    return nn.functional.cross_entropy(logits, y, weights)


null = open(os.devnull, "w")  # noqa: SIM115


class Eager(torch.optim.Optimizer):
    """Steps number by number."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            for row in parameter.view(-1, parameter.shape[-1]):
                for _ in range(20):
                    row.sub_(row * 1e-9)  # planted


class Broken(nn.Module):
    """A module whose graph breaks."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        hidden = self.inner[0](x)
        if not HEALTHY:
            torch._dynamo.graph_break()  # planted
        return self.inner[1:](hidden)


def uneven(x):
    if os.environ.get("RANK") == "1" and not HEALTHY:
        time.sleep(0.05)  # planted
    return x


def loader():
    samples = [(torch.randn(32), torch.randint(8, ())) for _ in range(32 * STEPS)]
    return torch.utils.data.DataLoader(samples, batch_size=32, collate_fn=None if HEALTHY else tokenized)


def main():
    change = {"augment": augment, "tokens": tokens, "rank": uneven}.get(NAME, same)
    call = model
    if NAME == "break":
        call = torch.compile(Broken(model), backend="aot_eager")
    if NAME == "hook":
        model[-1].register_forward_hook(convert)
    eager = NAME == "optimizer" and not HEALTHY
    optimizer = Eager(model.parameters()) if eager else torch.optim.SGD(model.parameters(), lr=0.01)
    if NAME == "rank":
        torch.distributed.init_process_group("gloo")
        call = nn.parallel.DistributedDataParallel(model)
    for x, y in loader() if NAME == "collate" else batches():
        logits = call(change(x))
        loss = loss_of(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if NAME == "metric":
            metric(logits, y)
        if NAME == "print":
            log(loss, logits)
    if NAME == "rank":
        # A gloo thread that frees the last work of a backward pass needs the GIL, which the end of the group holds
        # while it waits for the thread (seen with torch 2.13).
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


main()
