"""The surroundings of a program: python surroundings.py numbers|environment|closed|folder"""

import hashlib
import os
import random
import subprocess
import sys
import tempfile

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
STEPS = 40
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step():
    optimizer.zero_grad()
    loss = model(torch.rand(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    return f"{loss.item():.8f}"


def numbers():
    """The state of every generator of random numbers in each step."""
    import numpy

    numpy.random.seed(0)
    for number in range(STEPS):
        step()
        states = repr(random.getstate()), repr(numpy.random.get_state()), str(torch.get_rng_state().tolist())
        print(number, *(hashlib.md5(one.encode()).hexdigest() for one in states))
        random.random(), numpy.random.rand()


def environment():
    """Children see the environment that the program gives them."""
    code = (
        "import sys, os; print(len(sys.path), sorted(n for n in os.environ if 'PERFKIT' in n), "
        "[getattr(one, '__name__', type(one).__name__) for one in sys.meta_path])"
    )
    for number in range(STEPS):
        step()
        if number in (5, 13, 30):
            print(subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True))


def closed():
    """A program that closes its streams, and one whose streams go elsewhere."""
    for number in range(STEPS):
        loss = step()
        if number == 8:
            print("closing", loss, flush=True)
            sys.stderr.close()
            os.close(2)
            os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    os.closerange(3, 200)
    print(loss)


def folder():
    """The folder in which it started is gone while it runs."""
    gone = tempfile.mkdtemp()
    os.chdir(gone)
    os.rmdir(gone)
    os.environ.clear()
    for number in range(STEPS):
        print(number, step())


globals()[sys.argv[1]]()
