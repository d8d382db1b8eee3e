"""Modes over whole steps: python modes.py dispatch|function|inference|anomaly|deterministic|default|nested"""

import collections
import contextlib
import sys

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

STEPS = 40
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters())
numbers = torch.Generator().manual_seed(2)
calls = collections.Counter()


class Operators(TorchDispatchMode):
    """Counts each operator."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    """Counts each function of torch."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        calls[getattr(func, "__qualname__", repr(func))] += 1
        return func(*args, **(kwargs or {}))


def step():
    x = torch.randn(8, 16, generator=numbers)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def train(mode, steps=STEPS):
    with mode:
        print([f"{step():.8f}" for _ in range(steps)])


def dispatch():
    train(Operators())


def function():
    train(Functions())


def nested():
    """Modes of both kinds, entered again in each step; and how deep their stack is."""
    deepest = 0
    for _ in range(STEPS):
        with Operators(), Functions(), Operators():
            step()
            deepest = max(deepest, len(_get_current_dispatch_mode_stack()))
    print(deepest, len(_get_current_dispatch_mode_stack()))


def inference():
    """No step trains: tensors of inference mode, and their versions."""
    total = 0.0
    with torch.inference_mode():
        for _ in range(STEPS):
            y = model(torch.randn(8, 16, generator=numbers))
            total += y.sum().item()
    print(f"{total:.6f}", y.is_inference(), torch.is_inference_mode_enabled())


def anomaly():
    """Detects a NaN in backward after thirty steps, and says where forward made it."""
    with torch.autograd.set_detect_anomaly(True):
        for number in range(STEPS):
            print(number, f"{step():.8f}")
        x = torch.zeros(2, requires_grad=True)
        try:
            (x.sqrt() * 0).sum().backward()
        except RuntimeError as error:
            print(str(error).splitlines()[0])


def deterministic():
    """Deterministic algorithms, which fill memory, and another default type."""
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float64)
    model.double()
    global numbers
    numbers = torch.Generator().manual_seed(2)
    train(contextlib.nullcontext())
    print(torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled())


def default():
    """A default device as a mode; and switching the gradients off and on between."""
    with torch.device("cpu"), torch.set_grad_enabled(True):
        for number in range(STEPS):
            step()
            with torch.no_grad():
                calls[f"grad {torch.is_grad_enabled()} at {number % 2}"] += bool(model(torch.ones(1, 16)).requires_grad)
    print(torch.is_grad_enabled(), torch.get_default_device())


globals()[sys.argv[1]]()
print(sorted(calls.items()))
