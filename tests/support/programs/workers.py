"""A DataLoader with workers, each of which runs a small model on its samples."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

augment = nn.Linear(16, 16)


class Samples(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, i):
        x = torch.randn(16, generator=torch.Generator().manual_seed(i))
        with torch.no_grad():
            return augment(x), i % 4


if __name__ == "__main__":
    torch.manual_seed(0)
    augment.load_state_dict({"weight": torch.eye(16), "bias": torch.zeros(16)})
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    for step, (x, y) in enumerate(DataLoader(Samples(), batch_size=32, num_workers=2, shuffle=True)):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.10f}")
