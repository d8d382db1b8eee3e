"""Layers are called while the model is made: by weight normalisation, to find a size by a trial, by quantization."""

import warnings

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

warnings.simplefilter("ignore")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(weight_norm(nn.Conv1d(8, 8, 3, padding=1)) for _ in range(12))
        size = self.features(torch.zeros(1, 8, 64)).shape[1]
        self.head = nn.Linear(size, 4)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.relu(block(x))
        return x.flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x))


torch.manual_seed(0)
frozen = torch.ao.quantization.quantize_dynamic(nn.Sequential(*[nn.Linear(8, 8) for _ in range(12)]), {nn.Linear})
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, fused=True)  # of 38 tensors
for _ in range(8):
    optimizer.zero_grad()
    loss = net(torch.randn(16, 8, 64)).square().mean()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.4f}", len(frozen))
