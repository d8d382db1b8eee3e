"""Lightning's Trainer."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 4))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val", nn.functional.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


L.seed_everything(0)
data = TensorDataset(torch.randn(1024, 32), torch.randint(4, (1024,)))
trainer = L.Trainer(
    max_steps=16,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accumulate_grad_batches=2,
)
model = Lit()
trainer.fit(model, DataLoader(data, batch_size=32), DataLoader(data, batch_size=256))
print(f"{sum(p.double().sum().item() for p in model.parameters()):.12f}")
