"""Matrix FLOP of a GPT-2 style decoder by hand: what MFU is judged by, and what the operator model must add up to.

B batch, T time, C channels, NH heads, L layers, V vocabulary (padded, if the program pads it). A product of (M,K) and
(K,N) is 2·M·N·K. Attention counts all T×T scores: the causal mask is not halved. Backward is twice forward, for each
product has one towards its input and one towards its weight.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GPTShape:
    """Sizes of one step: batch B, time T, channels C, heads NH, layers L, vocabulary V, MLP width in channels."""

    batch: int
    time: int
    channels: int
    heads: int
    layers: int
    vocabulary: int
    expansion: int = 4

    @property
    def tokens(self) -> int:
        """Tokens of a step, B·T."""
        return self.batch * self.time


def forward_flop(shape: GPTShape) -> dict[str, float]:
    """Matrix FLOP of one forward pass by part, all layers together.

    qkv 2·B·T·C·3C, scores and attention values 2·B·NH·T·T·(C/NH) each, projection 2·B·T·C·C, mlp 2 · 2·B·T·C·4C, each
    × L; logits 2·B·T·C·V once.
    """
    n, c, layers = shape.tokens, shape.channels, shape.layers
    attention = 2.0 * shape.batch * shape.heads * shape.time**2 * (c // shape.heads) * layers
    return {
        "qkv": 2.0 * n * c * 3 * c * layers,
        "attention_scores": attention,
        "attention_values": attention,
        "projection": 2.0 * n * c * c * layers,
        "mlp": 2 * 2.0 * n * c * shape.expansion * c * layers,
        "logits": 2.0 * n * c * shape.vocabulary,
    }


def matmul_flop(shape: GPTShape) -> dict[str, dict[str, float]]:
    """Matrix FLOP by pass and part: {"forward": {part: FLOP}, "backward": {…}, "step": {…}}, each with a "total"."""
    forward = forward_flop(shape)
    passes = {"forward": 1, "backward": 2, "step": 3}
    result = {name: {part: factor * flop for part, flop in forward.items()} for name, factor in passes.items()}
    for parts in result.values():
        parts["total"] = sum(parts.values())
    return result
