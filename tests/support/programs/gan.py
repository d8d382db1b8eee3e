"""Two networks and two optimizers: the discriminator takes two steps for one of the generator."""

import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))

    def forward(self, x):
        return self.net(x)


torch.manual_seed(0)
generator, discriminator = Generator(), Discriminator()
of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
loss_of = nn.BCEWithLogitsLoss()

for step in range(14):
    for _ in range(2):
        real, fake = torch.randn(128, 64) + 1, generator(torch.randn(128, 16)).detach()
        loss_d = loss_of(discriminator(real), torch.ones(128, 1)) + loss_of(discriminator(fake), torch.zeros(128, 1))
        of_discriminator.zero_grad()
        loss_d.backward()
        of_discriminator.step()
    loss_g = loss_of(discriminator(generator(torch.randn(128, 16))), torch.ones(128, 1))
    of_generator.zero_grad()
    loss_g.backward()
    of_generator.step()
    print(f"step {step} D {loss_d.item():.10f} G {loss_g.item():.10f}")
