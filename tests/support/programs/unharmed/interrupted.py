"""Signals, and what leaves a step early: python interrupted.py handler|generator|context"""

import signal
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(6)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


class Late(Exception):
    pass


def step():
    optimizer.zero_grad()
    loss = model(torch.ones(4, 16)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def handler():
    """A handler that trains a model of its own, within steps of the other."""
    other = nn.Linear(4, 4)
    small = torch.optim.SGD(other.parameters(), lr=0.1)
    losses = []

    def train(*_):
        small.zero_grad()
        loss = other(torch.ones(1, 4)).square().sum()
        loss.backward()
        small.step()
        losses.append(f"{loss.item():.6f}")

    signal.signal(signal.SIGUSR1, train)
    for number in range(40):
        loss = step()
        if number % 4 == 1:
            signal.raise_signal(signal.SIGUSR1)
        print(number, f"{loss:.8f}")
    print(losses)


def generator():
    """Steps within generators that are closed and thrown into."""

    def steps():
        try:
            while True:
                try:
                    with torch.no_grad():
                        y = model(torch.ones(1, 16))
                    yield y.sum().item()
                except Late:
                    yield "late"
        finally:
            print("closed", f"{step():.7f}")

    for _ in range(8):
        one = steps()
        print([f"{next(one):.7f}" for _ in range(4)], one.throw(Late), f"{step():.7f}")
        one.close()


def context():
    """StopIteration and SystemExit out of forward, caught outside."""

    class Stops(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x, kind=None):
            y = self.inner(x)
            if kind:
                raise kind
            return y

    own = Stops()
    stepping = torch.optim.SGD(own.parameters(), lr=0.1)
    kinds = [None, StopIteration, None, SystemExit, KeyboardInterrupt, None, GeneratorExit, RecursionError, MemoryError]
    for number in range(45):
        try:
            own(torch.ones(1, 4), kinds[number % 9]).sum().backward()
            stepping.step()
            print(number, f"{own.inner.weight.sum().item():.7f}")
        except BaseException as error:
            trace, frames = error.__traceback__, 0
            while trace:
                trace, frames = trace.tb_next, frames + 1
            print(number, type(error).__name__, error.__context__, error.__cause__)


globals()[sys.argv[1]]()
