"""Ways to step: python optimizers.py lbfgs|two|anew|functional|averaged|scheduled|hooked|own"""

import copy
import gc
import sys
import warnings

import torch
from torch import nn
from torch.optim.sgd import sgd
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

STEPS = 40
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(24, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 3))
numbers = torch.Generator().manual_seed(3)


def batch():
    return torch.randn(16, 24, generator=numbers)


def objective(x):
    return (model(x) - x[:, :3]).square().mean()


def step(*optimizers):
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss = objective(batch())
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    return loss.item()


def lbfgs():
    """A closure is called many times by each step."""
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5, history_size=4)
    calls = 0
    for number in range(STEPS):
        x = batch()

        def closure(x=x):
            nonlocal calls
            calls += 1
            optimizer.zero_grad()
            loss = objective(x)
            loss.backward()
            return loss

        print(number, f"{optimizer.step(closure).item():.7f}", calls)


def two():
    """The head steps each time, the body each third time."""
    body, head = torch.optim.SGD(model[:2].parameters(), lr=0.01), torch.optim.Adam(model[3].parameters())
    for number in range(STEPS):
        print(number, f"{step(*((head, body) if number % 3 == 2 else (head,))):.8f}")


def anew():
    """A new optimizer in each epoch of five steps; the old ones are collected."""
    for epoch in range(STEPS // 5):
        kind = (torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop)[epoch % 3]
        optimizer = kind(model.parameters(), lr=0.01)
        print(epoch, [f"{step(optimizer):.8f}" for _ in range(5)])
        del optimizer
        gc.collect()
    print(sum(type(one) is torch.optim.Adam for one in gc.get_objects()))


def functional():
    """No optimizer object: gradients by torch.autograd.grad, the update by a function."""
    values = list(model.parameters())
    moments = [torch.zeros_like(one) for one in values]
    for number in range(STEPS):
        loss = objective(batch())
        gradients = list(torch.autograd.grad(loss, values))
        with torch.no_grad():
            sgd(
                values, gradients, moments, weight_decay=0.0, momentum=0.9, lr=0.01, dampening=0.0, nesterov=True,
                maximize=False, foreach=number % 2 == 0,
            )  # fmt: skip
        print(number, f"{loss.item():.8f}")


def averaged():
    """Averages of the weights, by SWA with its own schedule and by EMA."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    swa, ema = AveragedModel(model), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    schedule = SWALR(optimizer, swa_lr=0.01, anneal_epochs=5)
    for number in range(STEPS):
        step(optimizer)
        ema.update_parameters(model)
        if number % 5 == 4:
            swa.update_parameters(model)
            schedule.step()
    update_bn([batch() for _ in range(4)], swa)
    for one in (model, swa, ema):
        print(f"{sum(value.double().sum().item() for value in one.state_dict().values()):.8f}")


def scheduled():
    """Schedulers look at the optimizer's step, and warn where the order is wrong."""
    warnings.simplefilter("always")
    for right in (True, False):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        schedules = [torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5), torch.optim.lr_scheduler.CyclicLR(
            optimizer, 0.001, 0.01, cycle_momentum=False, step_size_up=3)]  # fmt: skip
        for number in range(STEPS // 2):
            if right:
                step(optimizer)
            for schedule in schedules:
                schedule.step()
            if not right:
                step(optimizer)
            print(number, [f"{rate:.8f}" for schedule in schedules for rate in schedule.get_last_lr()])


def hooked():
    """Hooks before and after steps, of one optimizer and of all."""
    from torch.optim import optimizer as shared

    seen = []
    optimizer = torch.optim.Adam(model.parameters())
    removable = [
        shared.register_optimizer_step_pre_hook(lambda *_: seen.append("all before")),
        shared.register_optimizer_step_post_hook(lambda *_: seen.append("all after")),
        optimizer.register_step_pre_hook(lambda one, *_: seen.append(type(one).__name__)),
        optimizer.register_step_post_hook(lambda one, *_: seen.append(len(one.state))),
    ]
    for _ in range(STEPS):
        step(optimizer)
    for one in removable:
        one.remove()
    step(optimizer)
    print(len(seen), seen[:4], seen[-4:])


class Sign(torch.optim.Optimizer):
    """An optimizer of the program's own, which says where it was called from by a warning."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    def step(self, closure=None):
        warnings.warn("a step of Sign", stacklevel=2)
        with torch.no_grad():
            for group in self.param_groups:
                for one in group["params"]:
                    one.sub_(one.grad.sign(), alpha=group["lr"])


def own():
    """An optimizer class of the program's own, a copy of it, and a step that its object replaces."""
    optimizer = Sign(model.parameters(), 0.001)
    taken = []
    original = optimizer.step
    for number in range(STEPS):
        if number == 9:
            optimizer.step = lambda: taken.append(original())
        print(number, f"{step(optimizer):.8f}")
    other = copy.deepcopy(Sign(model.parameters(), 0.5))
    print(len(taken), "step" in vars(optimizer), "step" in vars(other), other.param_groups[0]["lr"])


globals()[sys.argv[1]]()
