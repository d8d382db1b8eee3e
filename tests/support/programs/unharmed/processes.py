"""Training next to other processes: python processes.py spawn|fork|loader|child|hogwild"""

import os
import sys

import torch
from torch import multiprocessing, nn
from torch.utils.data import DataLoader, Dataset

STEPS = 32
torch.set_num_threads(1)


def built(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 2))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def train(model, optimizer, count, seed):
    numbers = torch.Generator().manual_seed(seed)
    loss = torch.zeros(())
    for _ in range(count):
        x = torch.randn(8, 16, generator=numbers)
        optimizer.zero_grad()
        loss = (model(x) - x[:, :2]).square().mean()
        loss.backward()
        optimizer.step()
    return f"{loss.item():.8f}"


def work(asked, answers):
    model, optimizer = built(1)
    for seed in iter(asked.get, None):
        answers.put((seed, train(model, optimizer, 6, seed)))


def workers(method):
    """A worker process takes work from a queue while the main process trains."""
    context = multiprocessing.get_context(method)
    asked, answers = context.Queue(), context.Queue()
    worker = context.Process(target=work, args=(asked, answers))
    worker.start()
    model, optimizer = built()
    for seed in range(STEPS // 4):
        asked.put(seed)
        print("main", train(model, optimizer, 4, seed))
    print("worker", [answers.get() for _ in range(STEPS // 4)])
    asked.put(None)
    worker.join()
    print("ended with", worker.exitcode)


class Numbers(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((16,), index / 64), os.environ.get("MODE", "")


def loader():
    """Workers that persist over three epochs, and others that start again in each."""
    model, optimizer = built()
    for persistent in (True, False):
        batches = DataLoader(Numbers(), batch_size=8, num_workers=2, persistent_workers=persistent)
        for epoch in range(3):
            total = 0.0
            for x, _ in batches:
                optimizer.zero_grad()
                loss = (model(x) - 1).square().mean()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(persistent, epoch, f"{total:.8f}")


def child():
    """Forks after the first step, and again after the twentieth; the children train and end by `os._exit`."""
    model, optimizer = built()
    for number in range(STEPS):
        loss = train(model, optimizer, 1, number)
        if number in (0, 11, 20):
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                print("child", number, train(model, optimizer, 15, 77), flush=True)
                os._exit(number)
            print("child ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        print(number, loss)


def part(model, count):
    train(model, torch.optim.SGD(model.parameters(), lr=0.01), count, 5)


def hogwild():
    """Processes train one model in shared memory, one after the other, the main process last."""
    model, _ = built()
    model.share_memory()
    for method in ("spawn", "fork"):
        process = multiprocessing.get_context(method).Process(target=part, args=(model, 16))
        process.start()
        process.join()
        print(method, process.exitcode, f"{sum(p.double().sum().item() for p in model.parameters()):.8f}")
    part(model, STEPS)
    print(f"{sum(p.double().sum().item() for p in model.parameters()):.8f}", model[0].weight.is_shared())


if __name__ == "__main__":
    kind = sys.argv[1]
    workers(kind) if kind in ("spawn", "fork") else globals()[kind]()
