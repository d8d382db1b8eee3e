"""A small MLP that tells classes of points apart: an example of a workload of your own.

Legend: B batch, D features, H hidden width, K classes.
"""

import torch
import torch.nn.functional as F
from torch import nn

from perfkit.workloads import Settings, Workload


class Classifier(nn.Module):
    """points (B, D) → scores (B, K); with labels (B,) also the loss ()."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, classes)

    def forward(self, points, labels=None):
        scores = self.head(self.body(points))
        return scores, None if labels is None else F.cross_entropy(scores, labels)


class MyModel(Workload):
    name = "my_model"
    summary = "An MLP classifier on points around the centres of their classes"
    presets = {
        "small": {"batch_size": 64, "features": 32, "hidden": 128, "classes": 10},
        "wide": {"batch_size": 256, "features": 256, "hidden": 2048, "classes": 100},
    }
    passes = {"classifier": ("head",)}

    def build(self, settings: Settings) -> nn.Module:
        size = self.dimensions(settings)
        torch.manual_seed(settings.seed)
        return Classifier(size["features"], size["hidden"], size["classes"])

    def batch(self, settings: Settings, step: int):
        size = self.dimensions(settings)
        of_classes = torch.Generator().manual_seed(settings.seed)
        of_batch = torch.Generator().manual_seed(settings.seed + 1 + step)
        centres = torch.randn(size["classes"], size["features"], generator=of_classes)
        labels = torch.randint(size["classes"], (settings.batch_size,), generator=of_batch)
        points = centres[labels] + torch.randn(settings.batch_size, size["features"], generator=of_batch)
        return (points, labels) if settings.training else (points,)
