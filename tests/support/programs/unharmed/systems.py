"""Programs between the operating system and torch: python systems.py spawned|signals|leaving|serving|shared|streams."""

import asyncio
import atexit
import logging
import multiprocessing
import os
import signal
import sys
import threading

import torch
from torch import nn

STEPS = 24
torch.set_num_threads(1)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def train(steps=STEPS, each=lambda number: None):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for number in range(steps):
        loss = model(torch.full((8, 16), 1 / (number + 1))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        each(number)
    return loss.item()


def trial(rate):
    """One trial of a sweep, in a process of the pool."""
    return f"{rate} {train(6):.6f}"


def spawned():
    """A pool of new interpreters runs trials while this one trains."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        coming = pool.map_async(trial, [0.1, 0.2, 0.3])
        print(f"{train():.6f}")
        print(coming.get(100))


def signals():
    """Handlers run between the steps and in them, save a checkpoint, and end the loop; a timer goes on all the time."""
    seen = {"timer": 0, "user": 0}
    ended = threading.Event()

    def user(number, frame):
        seen["user"] += 1
        torch.save(network().state_dict(), os.devnull)

    signal.signal(signal.SIGUSR1, user)
    signal.signal(signal.SIGALRM, lambda *_: seen.update(timer=seen["timer"] + 1))
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)

    def each(number):
        if number % 5 == 0:
            os.kill(os.getpid(), signal.SIGUSR1)
        if number == STEPS - 2:
            os.kill(os.getpid(), signal.SIGTERM)

    print(f"{train(each=each):.6f}", seen["user"], seen["timer"] > 0, ended.is_set())
    signal.setitimer(signal.ITIMER_REAL, 0)


def leaving():
    """What runs at exit trains once more, logs, raises, and says with which code the process ends."""

    def last():
        print(f"at exit {train(3):.6f}", flush=True)
        os._exit(5)

    def fails():
        raise ValueError("in a function that runs at exit")

    atexit.register(last)
    atexit.register(fails)
    atexit.register(logging.shutdown)
    print(f"{train():.6f}", flush=True)
    sys.exit("the program's own last words")


def serving():
    """A server on a loop: requests are batched, a thread of the loop's pool runs the model, some are cancelled."""
    model = network().eval()

    def answer(x):
        with torch.inference_mode():
            return model(x).sum().item()

    async def worker(queue):
        while True:
            x, future = await queue.get()
            value = await asyncio.to_thread(answer, x)
            if not future.cancelled():
                future.set_result(value)

    async def ask(queue, number):
        future = asyncio.get_running_loop().create_future()
        await queue.put((torch.full((2, 16), float(number)), future))
        if number % 7 == 6:
            future.cancel()
        try:
            return f"{await future:.4f}"
        except asyncio.CancelledError:
            return "cancelled"

    async def serve():
        queue = asyncio.Queue()
        task = asyncio.create_task(worker(queue))
        answers = [await ask(queue, number) for number in range(STEPS)]
        task.cancel()
        return answers

    print(asyncio.run(serve()))


def add_to(tensor, barrier):
    """Add to memory that another process sees."""
    tensor.add_(1)
    barrier.wait()


def shared():
    """Tensors in shared memory go to processes and come back amid the steps."""
    context = torch.multiprocessing.get_context("fork")
    common = torch.zeros(4).share_memory_()

    def each(number):
        if number in (4, 15):
            barrier = context.Barrier(2)
            child = context.Process(target=add_to, args=(common, barrier))
            child.start()
            barrier.wait()
            child.join()

    print(f"{train(each=each):.6f}", common.tolist(), common.is_shared())


def streams():
    """Lines on both streams, children's among them, keep their order within each."""

    def each(number):
        print("out", number, flush=True)
        os.write(2, b"err %d\n" % number)
        os.system(f"echo child {number} >&2")

    train(each=each)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
