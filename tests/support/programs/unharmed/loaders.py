"""Training from DataLoaders with workers: python loaders.py numbers|iterable|fails|spawn|forkserver|left"""

import random
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

torch.set_num_threads(1)


class Numbers(Dataset):
    """Samples of each generator of random numbers, and what a worker says of itself."""

    def __init__(self, fails=-1):
        self.fails = fails

    def __len__(self):
        return 72

    def __getitem__(self, index):
        if index == self.fails:
            raise ValueError(f"sample {index} is damaged")
        info = get_worker_info()
        own = (info.id, info.num_workers, info.seed % 1000) if info else ()
        return torch.randn(16) + random.random() + np.random.rand(), own


class Stream(IterableDataset):
    """Parts of different lengths for the workers."""

    def __iter__(self):
        info = get_worker_info()
        for i in range(20 + 30 * info.id):
            yield torch.full((16,), i / 64), (info.id,)


def begun(worker):
    random.seed(worker)


def train(batches, epochs=1, leave=99):
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        for number, (x, own) in enumerate(batches):
            optimizer.zero_grad()
            loss = (model(x) - 1).square().mean()
            loss.backward()
            optimizer.step()
            print(epoch, number, f"{loss.item():.8f}", *(part.tolist()[:2] for part in own))
            if number == leave:
                break


def main(kind):
    if kind == "numbers":
        train(DataLoader(Numbers(), 4, shuffle=True, num_workers=2, worker_init_fn=begun, persistent_workers=True), 2)
        train(DataLoader(Numbers(), 12, num_workers=3, prefetch_factor=1))
        train(DataLoader(Numbers(), 12))
    elif kind == "iterable":
        train(DataLoader(Stream(), 4, num_workers=2), 2)
    elif kind == "fails":
        train(DataLoader(Numbers(fails=50), 4, num_workers=2))
    elif kind == "left":
        train(DataLoader(Numbers(), 4, num_workers=2), 2, leave=9)
    else:
        train(DataLoader(Numbers(), 4, num_workers=1, multiprocessing_context=kind))


if __name__ == "__main__":
    main(sys.argv[1])
