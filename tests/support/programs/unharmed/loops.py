"""Training loops of other kinds: python loops.py trainer|unsynced|functions|nested|scripted|exported|pools."""

import concurrent.futures
import contextlib
import os
import sys
import tempfile

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

STEPS = 24
torch.set_num_threads(1)
torch.manual_seed(0)
numbers = torch.Generator().manual_seed(1)


def batch(rows=8):
    return torch.randn(rows, 16, generator=numbers)


def network():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


class Trainer:
    """Calls methods of its module, which return losses, with callbacks around them and a validation each epoch."""

    def __init__(self, module):
        self.module, self.optimizer, self.log = module, torch.optim.Adam(module.parameters(), lr=0.01), []

    def fit(self, epochs, batches):
        for epoch in range(epochs):
            self.module.train()
            for number in range(batches):
                self.optimizer.step(lambda number=number: self.closure(number))
            self.module.eval()
            with torch.no_grad():
                held_out = sum(self.module.validation_step(batch()) for _ in range(3))
            self.log.append(f"{epoch} {held_out.item():.6f}")

    def closure(self, number):
        loss = self.module.training_step(batch())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        return loss


class Task(nn.Module):
    """A module that is called only through its steps."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def training_step(self, x):
        return self.net(x).square().mean()

    def validation_step(self, x):
        return self.net(x).abs().mean()


def trainer():
    one = Trainer(Task())
    one.fit(4, 6)
    print(one.log)


def unsynced():
    """Gradients of three batches of four stay with the rank."""
    with tempfile.NamedTemporaryFile() as file:
        torch.distributed.init_process_group("gloo", init_method=f"file://{file.name}", rank=0, world_size=1)
        model = nn.parallel.DistributedDataParallel(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for number in range(4 * STEPS):
            last = number % 4 == 3
            with contextlib.nullcontext() if last else model.no_sync():
                (model(batch()).square().mean() / 4).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
        print(f"{sum(p.sum() for p in model.parameters()).item():.6f}")
        torch.distributed.barrier()  # see planted.py of tests/support/lines: without it the end may wait for itself
        torch.distributed.destroy_process_group()


def functions():
    """Gradients and updates are functions of the parameters."""
    model = network()
    state = {name: p.detach() for name, p in model.named_parameters()}

    def loss(state, x):
        return torch.func.functional_call(model, state, (x,)).square().mean()

    for number in range(STEPS):
        gradients, value = torch.func.grad_and_value(loss)(state, batch())
        state = {name: p - 0.05 * gradients[name] for name, p in state.items()}
        if number % 6 == 0:
            print(number, f"{value.item():.6f}")


class Block(nn.Module):
    """Recomputes itself, and what is in it recomputes too."""

    def __init__(self, depth):
        super().__init__()
        self.layer, self.inner = nn.Linear(16, 16), Block(depth - 1) if depth else nn.Identity()
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)

    def body(self, x):
        return x + self.drop(self.inner(torch.tanh(self.layer(x))))


def nested():
    model = Block(3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for number in range(STEPS):
        loss = model(batch()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(number, f"{loss.item():.6f}")


def scripted():
    """A traced module, and one that is saved and loaded, train in turns."""
    traced = torch.jit.trace(network(), batch())
    path = os.path.join(tempfile.mkdtemp(), "module.pt")
    torch.jit.save(traced, path)
    for model in (traced, torch.jit.load(path)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(STEPS):
            loss = model(batch()).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"{loss.item():.6f}", type(model).__name__, sorted(dict(model.named_children())))


def exported():
    """An exported program's module answers, and is exported again amid the requests."""
    model = network().eval()
    program = torch.export.export(model, (batch(),)).module()
    for number in range(STEPS):
        with torch.inference_mode():
            answer = program(batch()).sum()
        if number in (5, 11, 17):
            again = torch.export.export(model, (batch(),))
            print(number, f"{answer.item():.6f}", len(list(again.graph.nodes)))


def pools():
    """A pool of threads makes the batches, another one evaluates copies, while the main thread trains."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def evaluate(state):
        copy = network()
        copy.load_state_dict(state)
        with torch.no_grad():
            return copy(torch.ones(4, 16)).sum().item()

    makers, judges = concurrent.futures.ThreadPoolExecutor(1), concurrent.futures.ThreadPoolExecutor(2)
    with makers, judges:
        coming, judged = makers.submit(batch), []
        for number in range(STEPS):
            x, coming = coming.result(), makers.submit(batch)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if number % 4 == 0:
                judged.append(judges.submit(evaluate, {k: v.clone() for k, v in model.state_dict().items()}))
        print([f"{one.result():.5f}" for one in judged])


globals()[sys.argv[1]]()
