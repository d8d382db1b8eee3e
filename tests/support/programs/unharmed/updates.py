"""Updates and gradients out of the ordinary: python updates.py wrapped|penalty|reentrant|thread|instances"""

import collections
import sys
import threading

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
STEPS = 36
seen = collections.Counter()


def batch(number):
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(number))


def train(optimizer, step=None):
    for number in range(STEPS):
        optimizer.zero_grad()
        loss = model(batch(number)).square().mean()
        loss.backward()
        result = (step or optimizer.step)()
        print(number, f"{loss.item():.8f}", result)


class Lookahead(torch.optim.Optimizer):
    """An optimizer around another one, as libraries have it: no call of its parent's __init__."""

    def __init__(self, inner):
        self.inner, self.taken = inner, 0
        self.slow = [[one.detach().clone() for one in group["params"]] for group in inner.param_groups]

    param_groups = property(lambda self: self.inner.param_groups)
    state = property(lambda self: self.inner.state)
    defaults = property(lambda self: self.inner.defaults)

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)

    def step(self, closure=None):
        loss = self.inner.step(closure)
        self.taken += 1
        if self.taken % 5 == 0:
            with torch.no_grad():
                for slow, group in zip(self.slow, self.param_groups, strict=True):
                    for old, new in zip(slow, group["params"], strict=True):
                        old += 0.5 * (new - old)
                        new.copy_(old)
        return loss


def wrapped():
    train(Lookahead(torch.optim.Adam(model.parameters(), lr=0.01)))


def penalty():
    """A gradient penalty: backward through backward; gradients of chosen inputs; kept graphs."""
    optimizer = torch.optim.Adam(model.parameters())
    for number in range(STEPS):
        x = batch(number).requires_grad_()
        y = model(x)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        loss = y.square().mean() + slope.square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        loss.backward(inputs=[model[0].weight])
        y = model(batch(number))
        torch.autograd.backward([y.sum(), y.mean()])
        optimizer.step()
        print(number, f"{loss.item():.8f}")


def reentrant():
    """Backward within backward, with a module called and an optimizer stepped in there."""
    inner = nn.Linear(4, 4)
    small = torch.optim.SGD(inner.parameters(), lr=0.1)

    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            with torch.enable_grad():
                inner(torch.ones(1, 4)).sum().backward()
            small.step()
            small.zero_grad()
            return gradient

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(STEPS):
        optimizer.zero_grad()
        loss = Inner.apply(model(batch(number))).square().mean()
        loss.backward()
        optimizer.step()
        print(number, f"{loss.item():.8f}", f"{inner.weight.sum().item():.6f}")


def thread():
    """Forward here, backward and the step in a thread of its own each time."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(STEPS):
        optimizer.zero_grad()
        loss = model(batch(number)).square().mean()

        def rest(loss=loss):
            loss.backward()
            optimizer.step()

        worker = threading.Thread(target=rest)
        worker.start()
        worker.join()
        print(number, f"{loss.item():.8f}")


def instances():
    """A class of optimizer made again in each epoch, with a metaclass and slots."""

    class Meta(type):
        def __setattr__(cls, name, value):
            seen[f"set {name}"] += 1
            super().__setattr__(name, value)

    for epoch in range(6):
        kind = Meta(f"Kind{epoch}", (torch.optim.SGD,), {"__slots__": ()})
        optimizer = kind(model.parameters(), lr=0.1)
        for number in range(6):
            optimizer.zero_grad()
            loss = model(batch(number)).square().mean()
            loss.backward()
            optimizer.step()
            print(epoch, number, f"{loss.item():.8f}")


globals()[sys.argv[1]]()
print(sorted(map(str, seen.items())))
