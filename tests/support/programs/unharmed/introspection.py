"""A program that looks at torch and at its own objects, in each step: python introspection.py"""

import copy
import gc
import inspect
import io
import pickle
import sys
import threading
import weakref

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Model(nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return scale * self.down(self.up(x).relu())


LOOKED_AT = {
    "Module.__call__": lambda: nn.Module.__call__,
    "Module._call_impl": lambda: nn.Module._call_impl,
    "Module.forward": lambda: Model.forward,
    "Optimizer.step": lambda: torch.optim.Optimizer.step,
    "Optimizer.zero_grad": lambda: torch.optim.Optimizer.zero_grad,
    "Optimizer.__init__": lambda: torch.optim.Optimizer.__init__,
    "SGD.step": lambda: torch.optim.SGD.step,
    "SGD.__init__": lambda: torch.optim.SGD.__init__,
    "Tensor.backward": lambda: torch.Tensor.backward,
    "autograd.backward": lambda: torch.autograd.backward,
    "autograd.grad": lambda: torch.autograd.grad,
    "GradScaler.step": lambda: torch.amp.GradScaler.step,
    "profile.__enter__": lambda: torch.profiler.profile.__enter__,
    "profile.step": lambda: torch.profiler.profile.step,
    "compile": lambda: torch.compile,
    "DataLoader.__iter__": lambda: torch.utils.data.DataLoader.__iter__,
    "Thread.start": lambda: threading.Thread.start,
    "Thread.run": lambda: threading.Thread.run,
}


def look(function):
    """All that a library might ask of a function."""
    yield from (getattr(function, "__name__", None), function.__qualname__, function.__module__)
    yield str(inspect.signature(function))
    yield (inspect.getdoc(function) or "")[:40]
    yield from (function.__defaults__, function.__kwdefaults__, sorted(getattr(function, "__annotations__", {})))
    yield (inspect.iscoroutinefunction(function), inspect.ismethod(function), callable(function))
    yield inspect.getfullargspec(inspect.unwrap(function)).args


def source(function):
    """The first line of its source, as documentation tools read it."""
    return inspect.getsource(function).strip().splitlines()[0]


def objects(model, optimizer):
    """Attributes of the program's objects, and of copies of them."""
    file = io.BytesIO()
    torch.save({"model": model, "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)["model"]
    yield "saved", len(loaded.state_dict()), sorted(vars(loaded))
    twins = copy.deepcopy((model, optimizer)), pickle.loads(pickle.dumps((model, optimizer)))
    for other, stepper in twins:
        other(torch.ones(1, 8)).sum().backward()
        stepper.step()
        yield sorted(vars(other)), sorted(vars(stepper)), type(stepper).__mro__[1].__name__
    yield sorted(vars(model)), sorted(vars(optimizer)), len(model._forward_hooks), len(model._forward_pre_hooks)
    yield "__call__" in vars(type(model)), hasattr(model, "step"), hasattr(optimizer, "training")
    yield model.__call__.__func__ is nn.Module.__call__, optimizer.step.__func__ is type(optimizer).step
    yield [sorted(group) for group in optimizer.param_groups], len(optimizer._optimizer_step_pre_hooks)
    yield repr(optimizer).splitlines()[0], repr(model).splitlines()[0]


def rest():
    """Other things that a program may find."""
    from torch.nn.modules import module as shared
    from torch.optim import optimizer as stepping

    hooks = [name for name in vars(shared) if name.startswith("_global") and isinstance(vars(shared)[name], dict)]
    yield [(name, len(vars(shared)[name])) for name in sorted(hooks)]
    yield len(stepping._global_optimizer_pre_hooks), len(stepping._global_optimizer_post_hooks)
    yield sorted(one.name for one in threading.enumerate()), threading.excepthook is threading.__excepthook__
    yield sys.excepthook is sys.__excepthook__, sys.getprofile(), sys.gettrace(), sys.getrecursionlimit()
    yield gc.isenabled(), gc.get_threshold(), sys.argv, __name__, sys.flags.optimize
    yield torch.get_num_threads(), torch.is_grad_enabled(), torch.initial_seed(), sys.getswitchinterval()


def main():
    model, found = Model(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number in range(36):
        optimizer.zero_grad()
        loss = model(torch.full((4, 8), number / 36), scale=0.5).square().mean()
        loss.backward()
        optimizer.step()
        print(number, f"{loss.item():.8f}")
        if number % 4 == 0 or 8 < number < 18:
            for name, get in LOOKED_AT.items():
                found.append((number, name, list(look(get()))))
            found.append((number, "source", [source(get()) for get in LOOKED_AT.values()]))
            found.append((number, "objects", list(objects(model, optimizer))))
            found.append((number, "rest", list(rest())))
    model_gone, optimizer_gone = weakref.ref(model), weakref.ref(optimizer)
    for one in found:
        print(*one)
    del model, optimizer, loss
    gc.collect()
    print(model_gone(), optimizer_gone())


main()
