"""LoRA, low-rank adaptation: an MLP with frozen weights, each with two narrow trained matrices next to it.

Legend: B batch, W width, R rank, L layers.

    y = act(W·x + α·B·(A·x) + b)     W (W, W) and b (W) frozen, A (R, W) and B (W, R) learn, B starting at zero

The variant `fused` computes multiply, add and activation in one operation of perfkit's catalog where the backend has it
(`perfkit.functional.multiply_add_activation`); `unfused` is three operators of PyTorch's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from perfkit.functional import ACTIVATIONS, multiply_add_activation
from perfkit.workloads import Batch, Settings, Workload


class LoRALinear(nn.Module):
    """One adapted layer: x (B, K) → (B, M)."""

    def __init__(self, inputs: int, outputs: int, rank: int, alpha: float, activation: str, fused: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(outputs), requires_grad=False)
        self.a = nn.Parameter(torch.empty(rank, inputs))
        self.b = nn.Parameter(torch.zeros(outputs, rank))
        self.alpha, self.activation, self.fused = alpha, activation, fused
        for matrix in (self.weight, self.a):
            nn.init.kaiming_uniform_(matrix, a=5**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, W) → (B, W)."""
        frozen, learnt = F.linear(x, self.weight), F.linear(F.linear(x, self.a), self.b)
        if self.fused:
            return multiply_add_activation(frozen, learnt, self.alpha, self.bias, self.activation)
        return ACTIVATIONS[self.activation](frozen + self.alpha * learnt + self.bias)


class LoRA(nn.Module):
    """x (B, W), target (B, W) → y (B, W), loss (), or None without a target: ReLU layers, and a sigmoid at the end."""

    def __init__(self, layers: int, width: int, rank: int, alpha: float, fused: bool) -> None:
        super().__init__()
        kinds = ["relu"] * (layers - 1) + ["sigmoid"]
        self.layers = nn.ModuleList(LoRALinear(width, width, rank, alpha, kind, fused) for kind in kinds)

    def forward(self, x: Tensor, target: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x (B, W), target (B, W) → y (B, W), loss () or None."""
        for layer in self.layers:
            x = layer(x)
        return x, None if target is None else F.mse_loss(x, target)


class LoRAWorkload(Workload):
    """LoRA on an MLP, with Adam over the narrow matrices alone."""

    name = "lora"
    summary = "LoRA: narrow matrices that learn, next to frozen ones"
    presets = {
        "small": {"batch_size": 64, "layers": 2, "width": 256, "rank": 5, "alpha": 0.5},
        "main": {"batch_size": 512, "layers": 4, "width": 2048, "rank": 16, "alpha": 0.5},
    }
    variants = ("fused", "unfused")
    layers = "layers.*"
    takes = frozenset({"optimizer"})

    def build(self, settings: Settings) -> LoRA:
        """The model in fp32 on the CPU, seeded."""
        size = self.dimensions(settings)
        torch.manual_seed(settings.seed)
        fused = settings.variant == "fused"
        return LoRA(size["layers"], size["width"], size["rank"], size["alpha"], fused)

    def batch(self, settings: Settings, step: int) -> Batch:
        """x (B, W), and in training a target (B, W) between 0 and 1."""
        width = self.dimensions(settings)["width"]
        generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
        x = torch.randn(settings.batch_size, width, generator=generator)
        return (x, torch.sigmoid(x.roll(1, dims=1))) if settings.training else (x,)

    def optimizer(self, model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
        """Adam over what learns, in the form that `settings.optimizer` names."""
        form: dict[str, Any] = {} if settings.optimizer == "default" else {settings.optimizer: True}
        return torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3, **form)

    def model_flop(self, settings: Settings) -> dict[str, float]:
        """Matrix FLOP a layer: forward 2·B·W² + 4·B·W·R; backward the same for dx (but in the first) and 4·B·W·R."""
        size = self.dimensions(settings)
        rows = float(settings.batch_size * settings.grad_accumulation)
        wide, narrow = 2 * rows * size["width"] ** 2, 4 * rows * size["width"] * size["rank"]
        forward = {"forward": size["layers"] * (wide + narrow)}
        if not settings.training:
            return forward
        of_x = (size["layers"] - 1) * (wide + narrow / 2)  # dx through W, and through A
        return forward | {"backward": of_x + size["layers"] * (narrow / 2 + narrow)}  # through B, and dA, dB
