"""A deep stack of equal linear layers with GELUs between: the model of scaling experiments.

Legend: B batch, W width, L layers.

    x (B, W) → [linear (W → W) → GELU] L times → y (B, W) → loss (): mean of (y − target)²
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from perfkit.workloads import Batch, Settings, Workload


class Layer(nn.Linear):
    """A linear layer and a GELU: (B, W) → (B, W)."""

    def forward(self, x: Tensor) -> Tensor:
        """x (B, W) → (B, W)."""
        return F.gelu(super().forward(x), approximate="tanh")


class MLP(nn.Module):
    """x (B, W), target (B, W) → y (B, W), loss (), or None without a target."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, width) for _ in range(layers))

    def forward(self, x: Tensor, target: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x (B, W), target (B, W) → y (B, W), loss () or None."""
        for layer in self.layers:
            x = layer(x)
        return x, None if target is None else F.mse_loss(x, target)


class MLPWorkload(Workload):
    """The MLP of the profiling lecture: its cost grows in proportion to layers, batch and steps, and as width²."""

    name = "mlp"
    summary = "A stack of linear layers and GELUs, for scaling experiments"
    presets = {
        "deep": {"batch_size": 128, "layers": 16, "width": 128},
        "wide": {"batch_size": 256, "layers": 4, "width": 256},
        "large": {"batch_size": 1024, "layers": 8, "width": 1024},
    }
    layers = "layers.*"

    def build(self, settings: Settings) -> MLP:
        """The model in fp32 on the CPU, seeded."""
        size = self.dimensions(settings)
        torch.manual_seed(settings.seed)
        return MLP(size["layers"], size["width"])

    def batch(self, settings: Settings, step: int) -> Batch:
        """x (B, W), and in training a target (B, W): normally distributed numbers, and a fixed function of them."""
        width = self.dimensions(settings)["width"]
        generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
        x = torch.randn(settings.batch_size, width, generator=generator)
        return (x, torch.tanh(x.roll(1, dims=1))) if settings.training else (x,)

    def model_flop(self, settings: Settings) -> dict[str, float]:
        """A linear layer 2·B·W² FLOP forward, and twice that backward; the first needs no gradient of its input."""
        size = self.dimensions(settings)
        product = 2.0 * settings.batch_size * size["width"] ** 2 * settings.grad_accumulation
        forward = {"forward": product * size["layers"]}
        return forward | {"backward": product * (2 * size["layers"] - 1)} if settings.training else forward
