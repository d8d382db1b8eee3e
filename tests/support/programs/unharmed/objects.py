"""Objects of torch in unusual hands: python objects.py copied|called|partial|graphs|overridden|finalized|methods."""

import copy
import functools
import gc
import io
import pickle
import sys
import weakref

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

STEPS = 24
torch.set_num_threads(1)
torch.manual_seed(0)
numbers = torch.Generator().manual_seed(1)


def batch():
    return torch.randn(8, 16, generator=numbers)


class Net(nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def train(model, optimizer, call=None):
    loss = (call or model)(batch()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def copied():
    """The best model and its optimizer are kept, by deepcopy and by pickle, and put back now and then."""
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    for number in range(STEPS):
        loss = train(model, optimizer)
        scheduler.step()
        kept = copy.deepcopy((model, optimizer, scheduler))
        if number % 3 == 2:
            model, optimizer = pickle.loads(pickle.dumps((model, optimizer)))
            model, optimizer, scheduler = kept
        file = io.BytesIO()
        torch.save([model, optimizer], file)
        print(number, f"{loss:.6f}", scheduler.get_last_lr(), file.tell(), type(optimizer.step).__name__)


class Counted(nn.Module):
    """Has a call of its own, which counts."""

    def __init__(self):
        super().__init__()
        self.net, self.calls = Net(), 0

    def __call__(self, *args, twice=False, **kwargs):
        self.calls += 1
        found = super().__call__(*args, **kwargs)
        return found + super().__call__(*args, **kwargs) if twice else found

    def forward(self, x):
        return self.net(x)


def called():
    model = Counted()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = [train(model, optimizer, lambda x: model(x, twice=True)) for _ in range(STEPS)]
    print(model.calls, f"{sum(losses):.6f}", type(model).__call__.__qualname__)


def partial():
    """A partial of a module, and one of its bound call, are what a loop gets."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for call in (functools.partial(model), functools.partial(model.__call__), functools.partial(Net.__call__, model)):
        losses = [train(model, optimizer, call) for _ in range(STEPS // 2)]
        print(f"{sum(losses):.6f}", call.func is model or call.func.__qualname__)


def graphs():
    """A symbolic trace of the model is trained; in the steps it is traced again."""
    model = torch.fx.symbolic_trace(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for number in range(STEPS):
        loss = train(model, optimizer)
        again = torch.fx.symbolic_trace(Net())
        names = [node.name for node in again.graph.nodes]
        values = torch.fx.Interpreter(again).run(torch.ones(2, 16)).shape
        print(number, f"{loss:.6f}", names, tuple(values))


class Noted(TorchFunctionMode):
    """Counts what it sees, and calls a module of its own."""

    def __init__(self):
        super().__init__()
        self.seen, self.own = {}, nn.Linear(4, 4)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", str(function))
        self.seen[name] = self.seen.get(name, 0) + 1
        if name == "square":
            self.own(args[0].detach())
        return function(*args, **(kwargs or {}))


def overridden():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with Noted() as mode:
        losses = [train(model, optimizer) for _ in range(STEPS)]
    print(sorted(mode.seen.items()), f"{sum(losses):.6f}")


def finalized():
    """Finalizers run as soon as the last reference goes, in the order in which the program drops them."""
    gone = []
    for number in range(STEPS):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for name, one in (("model", model), ("optimizer", optimizer), ("weight", model.up.weight)):
            weakref.finalize(one, gone.append, f"{name} {number}")
        loss = model(batch()).square().mean()
        loss.backward()
        optimizer.step()
        del loss, optimizer
        before = list(gone[-2:])
        del model, one
        print(number, before, gone[-2:], len(gone))
    gc.collect()
    print(len(gone))


def methods():
    """Methods that were looked up before the steps are what the loop calls."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    call, step, zero, backward = model.__call__, optimizer.step, optimizer.zero_grad, torch.autograd.backward
    for number in range(STEPS):
        loss = call(batch()).square().mean()
        backward(loss)
        step()
        zero()
        print(number, f"{loss.item():.6f}", call.__name__, step.__func__.__qualname__)


globals()[sys.argv[1]]()
