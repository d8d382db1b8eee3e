"""Modules and inputs out of the ordinary: python inputs.py lazy|equal|attributes|fake|strange|names"""

import collections
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
seen = collections.Counter()


def train(call, parameters, batch, steps=30):
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    for number in range(steps):
        optimizer.zero_grad()
        loss = call(batch(number)).square().mean()
        loss.backward()
        optimizer.step()
        print(number, f"{loss.item():.8f}")


class Lazy(dict):
    """A batch that loads its columns when they are asked for."""

    def __getitem__(self, name):
        seen[f"column {name}"] += 1
        return torch.ones(2, 4)

    def __getattr__(self, name):
        seen[f"attribute {name}"] += 1
        raise AttributeError(name)

    def values(self):
        seen["values"] += 1
        return super().values()

    def __iter__(self):
        seen["iter"] += 1
        return super().__iter__()

    def __len__(self):
        seen["len"] += 1
        return 1


def lazy():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, batch):
            return self.linear(batch["x"])

    model = Model()
    train(model, model.parameters(), lambda n: Lazy(x=1))


def equal():
    """Modules and optimizers that compare by value, have no hash, and are false."""

    class Equal(nn.Linear):
        def __hash__(self):
            return 7

        def __eq__(self, other):
            seen["eq"] += 1
            raise TypeError("compares with nothing")

        def __bool__(self):
            seen["bool"] += 1
            return False

        def __len__(self):
            seen["len"] += 1
            return 0

    class Alike(torch.optim.SGD):
        def __eq__(self, other):
            seen["optimizer eq"] += 1
            return True

        __hash__ = None

    model = Equal(4, 4)
    optimizers = [Alike(model.parameters(), lr=0.01) for _ in range(2)]
    for number in range(30):
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        optimizers[number % 2].step()
        optimizers[0].zero_grad()
        print(number, f"{loss.item():.7f}")


class Attributes(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def __getattr__(self, name):
        seen[f"getattr {name}"] += 1
        return super().__getattr__(name)

    def named_modules(self, *args, **kwargs):
        seen["named_modules"] += 1
        return super().named_modules(*args, **kwargs)

    def children(self):
        seen["children"] += 1
        return super().children()

    def parameters(self, recurse=True):
        seen["parameters"] += 1
        return super().parameters(recurse)

    def __repr__(self):
        seen["repr"] += 1
        return "attributes"

    def forward(self, x):
        return self.linear(x)


def attributes():
    """A module that counts who asks it for what."""
    model = Attributes()
    train(model, list(nn.Module.parameters(model)), lambda n: torch.ones(2, 4))


def fake():
    """Models on the meta device, and in a mode of fake tensors, before and between steps."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
    for _ in range(4):
        with torch.device("meta"):
            other = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
            print(other(torch.ones(2, 4)).device)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            y = model(torch.ones(2, 4))
            print(type(y).__name__, tuple(y.shape), type(mode).__name__)
        train(model, model.parameters(), lambda n: torch.ones(2, 4), 7)


class NoShape(torch.Tensor):
    """A tensor that is not asked for its shape by others."""

    @property
    def shape(self):
        seen["shape"] += 1
        raise RuntimeError("no shape")

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        seen[getattr(function, "__name__", "?")] += 1
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


def strange():
    """Sparse, complex, quantised, nested, empty and no inputs; tensors without a shape; None as output."""
    model = nn.Linear(4, 4)

    class Through(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, *things, **named):
            return None

    through = Through()
    inputs = [
        torch.eye(4).to_sparse(), torch.ones(2, 2, dtype=torch.complex64), torch.zeros(0, 4), torch.tensor(1.0),
        torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), torch.ones(2).as_subclass(NoShape),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), None, "text", range(3),
        object(),
        torch.eye(4).to_sparse_csr(), {1: {2: (torch.ones(1),)}}, torch.nn.utils.rnn.pack_sequence([torch.ones(3, 1)]),
    ]  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(28):
        print(number, through(inputs[number % len(inputs)], key=inputs[-number % len(inputs)]), through())
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()


def names():
    """Names of modules with quotes, backslashes, newlines, other scripts and none."""
    odd = [
        'quo"te',
        "back\\slash",
        "new\nline",
        "\u0416\u65e5\u672c",
        "sp ace",
        "{}",
        "%s",
        "tab\t",
        "\x00nul",
        "\ud800x"[1:],
    ]
    model = nn.ModuleDict({name: nn.Linear(4, 4) for name in odd})

    def call(x):
        for name in odd:
            with torch.profiler.record_function(name.replace("\x00", "")):
                x = model[name](x)
        return x

    train(call, model.parameters(), lambda n: torch.ones(2, 4))


globals()[sys.argv[1]]()
print(sorted(seen.items()))
