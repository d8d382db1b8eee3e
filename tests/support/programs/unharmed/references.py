"""Objects live as long as the program keeps them: python references.py models|batches|cycle|many"""

import gc
import sys
import weakref

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


def built():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def models():
    """Each model and optimizer ends with its last reference, without the garbage collector."""
    gc.disable()
    for trial in range(8):
        model, optimizer = built()
        for _ in range(6):
            loss = step(model, optimizer, torch.ones(4, 16))
        gone = weakref.ref(model), weakref.ref(optimizer), weakref.ref(model[0].weight)
        del model
        kept = gone[0]() is None
        del optimizer
        print(trial, f"{loss:.8f}", kept, gone[1]() is None, gone[2]() is None)


def batches():
    """Inputs, outputs and losses of a step are gone after it."""
    model, optimizer = built()
    for number in range(40):
        x = torch.full((4, 16), number / 40)
        y = model(x)
        loss = y.square().mean()
        gone = [weakref.ref(one) for one in (x, y, loss)]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del x, y, loss
        print(number, [one() is None for one in gone])


def cycle():
    """A model that refers to its trainer, which refers to the model."""
    ended = []
    for trial in range(8):
        model, optimizer = built()
        model.trainer = {"model": [model], "optimizer": optimizer}
        weakref.finalize(model, ended.append, trial)
        for _ in range(5):
            step(model, optimizer, torch.ones(4, 16))
        del model, optimizer
        gc.collect()
        print(trial, ended)


def many():
    """Hundreds of modules and optimizers, made and dropped within each step; their number stays."""
    model, optimizer = built()
    for number in range(30):
        for _ in range(10):
            small = nn.Linear(4, 4)
            other = torch.optim.SGD(small.parameters(), lr=0.1)
            step(small, other, torch.ones(2, 4))
        step(model, optimizer, torch.ones(4, 16))
        gc.collect()
        print(number, sum(isinstance(one, nn.Linear) for one in gc.get_objects()))


globals()[sys.argv[1]]()
