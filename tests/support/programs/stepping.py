"""Programs whose steps take some finding: python stepping.py profiled|started|inside|trials|fresh|crowd|pool|…

Each kind ends by printing how many steps it took.
"""

import collections
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
CPU = [torch.profiler.ProfilerActivity.CPU]
taken = collections.Counter()


def perceptron(inputs=24, hidden=48, outputs=6):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=1e-2)


def train(model, optimizer, steps, rows=8):
    for _ in range(steps):
        loss = model(torch.randn(rows, 24)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        taken["steps"] += 1


# Profilers of the program's own --------------------------------------------------------------------------------------


def profiled(before):
    """It profiles two steps with stacks after some others."""
    model = perceptron()
    optimizer = sgd(model)
    train(model, optimizer, int(before))
    # Its events are not asked for: one in a hundred programs then fails, even without perfkit, as a name is not text.
    with torch.profiler.profile(activities=CPU, with_stack=True):
        train(model, optimizer, 2)
    train(model, optimizer, 14)


def started():
    """Its profiler is active from the first step to the last."""
    model = perceptron()
    own = torch.profiler.profile(activities=CPU)
    own.start()
    train(model, sgd(model), 14)
    own.stop()
    print(sum(event.name == "aten::addmm" for event in own.events()))


# Optimizers ----------------------------------------------------------------------------------------------------------


def inside():
    """Each parameter is updated as soon as its gradient is there."""
    model = perceptron()
    each = {id(one): torch.optim.AdamW([one], foreach=False) for one in model.parameters()}

    def update(one):
        each[id(one)].step()
        each[id(one)].zero_grad()

    for one in model.parameters():
        one.register_post_accumulate_grad_hook(update)
    for _ in range(16):
        F.mse_loss(model(torch.randn(8, 24)), torch.zeros(8, 6)).backward()
        taken["steps"] += 1


def trials(kept):
    """A model and an optimizer for each of a search's rates."""
    all_of_them = []
    for rate in (0.1, 0.03, 0.01, 0.003, 0.001):
        model = perceptron()
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        train(model, optimizer, 4)
        if kept == "kept":
            all_of_them.append((model, optimizer))


def renewed(each):
    """A new optimizer for every few steps of one model."""
    model = perceptron()
    for _ in range(24 // int(each)):
        train(model, sgd(model), int(each))


def compiled_update():
    """The optimizer's step is compiled."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    @torch.compile(backend="eager")
    def update():
        optimizer.step()

    for _ in range(12):
        optimizer.zero_grad()
        model(torch.randn(8, 24)).pow(2).mean().backward()
        update()
        taken["steps"] += 1
    counters = torch._dynamo.utils.counters
    print({name: dict(sorted(counters[name].items())) for name in ("frames", "stats", "graph_break")})


def elsewhere():
    """Gradients by torch.distributed.autograd, updates by its optimizer, in one process."""
    import tempfile
    from pathlib import Path

    from torch.distributed import autograd, rpc
    from torch.distributed.optim import DistributedOptimizer

    with tempfile.TemporaryDirectory() as scratch:
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{Path(scratch) / 'meeting'}")
        rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=options)
        model = perceptron(256, 512)
        optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.RRef(one) for one in model.parameters()], lr=1e-3)
        for _ in range(14):
            with autograd.context() as context:
                loss = model(torch.randn(64, 256)).pow(2).mean()
                autograd.backward(context, [loss])
                optimizer.step(context)
            taken["steps"] += 1
        rpc.shutdown()


# Servers: 16 rows in each request ------------------------------------------------------------------------------------

served = perceptron().eval()


def answer(_=None):
    with torch.inference_mode():
        served(torch.randn(16, 24))
    taken["steps"] += 1


def in_threads(count):
    threads = [threading.Thread(target=answer) for _ in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def fresh():
    """A new thread for each request, one after another."""
    for _ in range(40):
        in_threads(1)


def crowd():
    """Three new threads at a time."""
    for _ in range(20):
        in_threads(3)


def pool():
    """The threads of a pool; a request takes a moment to arrive."""

    def serve(number):
        time.sleep(1e-3)
        answer(number)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(serve, range(100)))


def straddled(before):
    """Two threads take turns; then each request of one begins within a request of the other and ends in its next."""
    meet = threading.Barrier(2, timeout=60)
    straddling = threading.Event()

    class Halfway(torch.nn.Module):
        def forward(self, x):
            if straddling.is_set():
                meet.wait()  # steady: may begin, or may go on; straddling: has begun
                meet.wait()  # steady: has begun, or is over; straddling: goes on
            return x

    model = torch.nn.Sequential(torch.nn.Linear(24, 48), Halfway(), torch.nn.Linear(48, 6))

    def ask(count):
        with torch.inference_mode():
            for _ in range(count):
                model(torch.randn(16, 24))
                taken["steps"] += 1

    def steady():
        for _ in range(8):
            ask(1)
            meet.wait()
            meet.wait()
        ask(int(before))
        straddling.set()
        ask(24)

    def straddles():
        for _ in range(8):
            meet.wait()
            ask(1)
            meet.wait()
        for _ in range(12):
            meet.wait()
            ask(1)
            meet.wait()

    threads = [threading.Thread(target=one) for one in (steady, straddles)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def later():
    """The main thread tries the model once; another one serves."""
    answer()
    worker = threading.Thread(target=lambda: [answer() for _ in range(30)])
    worker.start()
    worker.join()


def background():
    """Training in a thread."""
    model = perceptron()
    worker = threading.Thread(target=train, args=(model, sgd(model), 16, 16))
    worker.start()
    worker.join()


# Calls ---------------------------------------------------------------------------------------------------------------


def function():
    """A compiled function calls the model; the prompt does so without it."""
    model = perceptron(24, 48, 24).eval()

    @torch.compile(backend="aot_eager")
    def token(x):
        return torch.softmax(model(x), -1)

    with torch.no_grad():
        x = model(torch.ones(3, 24))
        for _ in range(16):
            x = token(x)
            taken["steps"] += 1


class Scale(nn.Module):
    """A transform without parameters."""

    def forward(self, x):
        return (x.float() - 128) / 128


class Pictures(torch.utils.data.Dataset):
    """Pictures that are scaled one by one, as they are loaded."""

    scale = Scale()

    def __len__(self):
        return 32 * 14

    def __getitem__(self, number):
        return self.scale(torch.full((3, 16, 16), number % 251, dtype=torch.uint8))


def transform():
    """An evaluation of 14 batches of 32 pictures."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 5)).eval()
    with torch.no_grad():
        for batch in torch.utils.data.DataLoader(Pictures(), batch_size=32):
            model(batch)
            taken["steps"] += 1


def epochs():
    """Five steps an epoch, then twelve batches of another size without gradients."""
    model = perceptron()
    optimizer = sgd(model)
    for _ in range(4):
        train(model, optimizer, 5)
        with torch.no_grad():
            for _ in range(12):
                model(torch.randn(32, 24))


globals()[sys.argv[1]](*sys.argv[2:])
print("steps", taken["steps"])
