"""Hooks, and replaced methods of torch: python hooks.py tensors|modules|graph|call|backward|everywhere"""

import collections
import sys

import torch
from torch import nn

STEPS = 36
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Sequential(nn.Tanh(), nn.Linear(16, 16)), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
numbers = torch.Generator().manual_seed(2)
seen = collections.Counter()


def step():
    x = torch.randn(4, 8, generator=numbers, requires_grad=True)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def count(what):
    def hook(*_):
        seen[what] += 1

    return hook


def tensors():
    """Hooks on gradients of tensors, one of which scales them, and after their accumulation."""
    for name, one in model.named_parameters():
        one.register_hook(lambda grad, name=name: (count(name)(), grad * 0.5)[1])
        one.register_post_accumulate_grad_hook(count(f"{name} accumulated"))


def modules():
    """Hooks of modules, forward and backward, of one and of all; one removes itself."""
    for name, one in model.named_modules():
        one.register_forward_pre_hook(count(f"{name} before"), with_kwargs=False)
        one.register_forward_hook(count(f"{name} after"), always_call=True)
        one.register_full_backward_hook(count(f"{name} backward"))
    nn.modules.module.register_module_forward_hook(count("every module"))
    handles = []
    handles.append(model.register_forward_hook(lambda *_: handles.pop().remove() if handles else None))


def graph():
    """Hooks of the autograd graph: of saved tensors, of its nodes, and after all gradients."""
    plain = model.forward

    def forward(x):
        pair = (lambda t: (count("packed")(), t)[1], lambda t: (count("unpacked")(), t)[1])
        with torch.autograd.graph.saved_tensors_hooks(*pair):
            y = plain(x)
        y.grad_fn.register_hook(count(f"node {y.grad_fn.name()}"))
        y.register_hook(lambda g: torch.autograd.Variable._execution_engine.queue_callback(count("all done")))
        return y

    model.forward = forward


def call():
    """The program replaces nn.Module.__call__ itself at its start, and puts it back after twenty steps."""
    original = nn.Module.__call__

    def counted(self, *args, **kwargs):
        seen[type(self).__name__] += 1
        return original(self, *args, **kwargs)

    nn.Module.__call__ = counted
    return lambda: setattr(nn.Module, "__call__", original)


def late():
    """The same after eleven steps, and for ever."""
    for _ in range(11):
        step()
    call()


def backward():
    """The program replaces Tensor.backward and the class's step, in the tenth step and until the last."""
    originals = torch.Tensor.backward, torch.optim.SGD.step
    for _ in range(10):
        step()

    def counted_backward(self, *args, **kwargs):
        seen["backward"] += 1
        return originals[0](self, *args, **kwargs)

    def counted_step(self, closure=None):
        seen["step"] += 1
        return originals[1](self, closure)

    torch.Tensor.backward, torch.optim.SGD.step = counted_backward, counted_step

    def restore():
        torch.Tensor.backward, torch.optim.SGD.step = originals

    return restore


def everywhere():
    """Each module object gets a forward of its own, and the optimizer too, as wrappers of libraries do."""

    def wrapped(name, plain):
        return lambda *args: (count(name)(), plain(*args))[1]

    for name, one in model.named_modules():
        one.forward = wrapped(name, one.forward)
    optimizer.step = wrapped("step", optimizer.step)


finish = globals()[sys.argv[1]]()
for number in range(20):
    print(number, f"{step():.8f}")
if callable(finish):
    finish()
for number in range(20, STEPS):
    print(number, f"{step():.8f}")
print(sorted(seen.items()))
