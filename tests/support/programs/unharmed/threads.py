"""Training next to other threads: python threads.py pool|logger|trainers|evaluator"""

import contextvars
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

STEPS = 40
torch.set_num_threads(1)
torch.manual_seed(0)
local = threading.local()
request = contextvars.ContextVar("request", default="none")


def built():
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def batch(number):
    numbers = torch.Generator().manual_seed(number)
    return torch.randn(16, 32, generator=numbers), torch.randint(4, (16,), generator=numbers)


def train(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def pool():
    """Two stages of a pipeline in a pool prepare what the main thread trains on; each job has its own context."""

    def load(number):
        local.loaded = getattr(local, "loaded", 0) + 1
        request.set(f"batch {number}")
        return batch(number)

    def normalised(future):
        x, y = future.result()
        return scale(x).detach(), y, request.get()

    scale = nn.LayerNorm(32)
    model, optimizer = built()
    with ThreadPoolExecutor(3, "loader") as loaders, ThreadPoolExecutor(2, "scaler") as scalers:
        waiting = [scalers.submit(normalised, loaders.submit(load, n)) for n in range(STEPS)]
        for number, future in enumerate(waiting):
            x, y, context = future.result()
            print(number, f"{train(model, optimizer, x, y):.8f}", context)


def logger():
    """A daemon thread counts while the program trains, and lives when it ends."""
    seen, stop = [], threading.Event()

    def count():
        while not stop.wait(0.002):
            seen.append(threading.current_thread().daemon)

    threading.Thread(target=count, name="logger", daemon=True).start()
    model, optimizer = built()
    local.best = 9.0
    for number in range(STEPS):
        local.best = min(local.best, train(model, optimizer, *batch(number)))
        time.sleep(0.003)
    print(f"{local.best:.8f}", all(seen) and bool(seen), sorted(thread.name for thread in threading.enumerate()))


def trainers():
    """Two threads train a model each at the same time, and the first thread none."""
    lines = {}

    def run(name, model, optimizer):
        lines[name] = [train(model, optimizer, *batch(number)) for number in range(STEPS)]

    threads = [threading.Thread(target=run, args=(f"thread {number}", *built())) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in sorted(lines):
        print(name, [f"{loss:.8f}" for loss in lines[name]])


def evaluator():
    """A new thread each step evaluates a copy of the model, while the main thread goes on."""
    model, optimizer = built()
    results = [None] * STEPS

    def evaluate(number, weights):
        with torch.no_grad():
            copy, _ = built()
            copy.load_state_dict(weights)
            results[number] = copy(batch(1000)[0]).square().mean().item()

    for number in range(STEPS):
        train(model, optimizer, *batch(number))
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        thread = threading.Thread(target=evaluate, args=(number, weights))
        thread.start()
        thread.join()
    print([f"{one:.8f}" for one in results], threading.active_count())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
