"""Workloads as people write them, without perfkit's form: variants by what the batch is and what the model returns."""

from __future__ import annotations

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

from perfkit.workloads import Settings, Workload

WIDTH = 8


class Net(nn.Module):
    """x (B, 8) → y (B, 8), returned in the form that `returns` names."""

    def __init__(self, returns: str) -> None:
        super().__init__()
        self.returns = returns
        self.body = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, target=None):
        y = torch.tanh(self.body(x))
        loss = None if target is None else F.mse_loss(y, target)
        if self.returns == "tuple":
            return y, loss
        if self.returns == "reversed":
            return (y,) if loss is None else (loss, y)
        if self.returns == "mapping":
            return {"loss": loss, "y": y, "hidden": (x, y)}
        return SimpleNamespace(loss=loss, logits=y) if self.returns == "object" else y


class Own(Workload):
    """The variant is BATCH-RETURNS."""

    name = "own"
    summary = "a model of one's own"
    presets = {"small": {"batch_size": 4}}
    variants = tuple(
        f"{batch}-{returns}" for batch in ("tuple", "mapping") for returns in ("tuple", "reversed", "mapping", "object")
    )

    def build(self, settings: Settings) -> nn.Module:
        torch.manual_seed(settings.seed)
        return Net(settings.variant.partition("-")[2])

    def batch(self, settings: Settings, step: int):
        x = torch.randn(settings.batch_size, WIDTH, generator=torch.Generator().manual_seed(step))
        batch = {"x": x, "target": x.roll(1)} if settings.training else {"x": x}
        return batch if settings.variant.startswith("mapping") else tuple(batch.values())
