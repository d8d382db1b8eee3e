"""Programs whose work is easily put in a wrong place, or lost: python placing.py watched|plain|towers|ragged|…"""

import sys
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

torch.manual_seed(0)
torch.set_num_threads(1)
STEPS = 14


def train(model, batch, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(batch()).pow(2).mean().backward()
        optimizer.step()


class Through(TorchDispatchMode):
    """Sees every operator, and lets it pass."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def plain():
    """Training as in `watched`, without its mode."""
    model = nn.Sequential(nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 16))
    train(model, lambda: torch.randn(64, 256))


def watched():
    """Training in a mode that sees every operator."""
    with Through():
        plain()


class Towers(nn.Module):
    """Two towers that run in two threads, and a layer that joins them."""

    def __init__(self):
        super().__init__()
        self.text, self.image, self.joined = nn.Linear(256, 256), nn.Linear(256, 256), nn.Linear(512, 4)
        self.threads = ThreadPoolExecutor(2)

    def forward(self, x):
        text, image = self.threads.submit(self.text, x), self.threads.submit(self.image, x)
        return self.joined(torch.cat([text.result(), image.result()], 1))


def towers():
    """Inference: gradients are off in the main thread alone."""
    model = Towers().requires_grad_(False)
    for _ in range(STEPS):
        model(torch.randn(128, 256))


class Ragged(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


def ragged():
    """Sentences of several lengths in one tensor that has no size."""
    model = Ragged()
    x = torch.nested.nested_tensor([torch.randn(length, 32) for length in (3, 11, 6)], layout=torch.strided)
    with torch.no_grad():
        for _ in range(STEPS):
            model(x)


class Wrapped(nn.Module):
    """Blocks in a wrapper that computes them again in the backward pass."""

    def __init__(self):
        super().__init__()
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

        self.blocks = nn.ModuleList(checkpoint_wrapper(Ragged()) for _ in range(3))
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def wrapped():
    train(Wrapped(), lambda: torch.randn(16, 32))


class Player(nn.Module):
    """Its parts are called by methods; it is never called itself."""

    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 3))
        self.critic = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))

    def play(self, x):
        return self.actor(x).log_softmax(-1), self.critic(x)


def player():
    model = Player()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(STEPS):
        moves, value = model.play(torch.randn(64, 8))
        optimizer.zero_grad()
        (value.pow(2).mean() - moves.mean()).backward()
        optimizer.step()


class Sounds(torch.utils.data.Dataset):
    """Sounds whose loading is work of tensors."""

    def __len__(self):
        return 8 * STEPS

    def __getitem__(self, number):
        x = torch.full((2048,), number / 100)
        for _ in range(4):
            x = x.roll(1).mul(0.9).tanh()
        return x.view(64, 32).mean(1)


def loader():
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in torch.utils.data.DataLoader(Sounds(), batch_size=8):
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()


globals()[sys.argv[1]]()
print("end")
