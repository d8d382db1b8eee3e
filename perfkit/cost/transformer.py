"""Matrix FLOP of decoders by hand, GPT-2's and Llama's: what MFU is judged by, and what operators must add up to.

B batch, T time, C channels, NH heads, NKV heads of keys and values, HS = C / NH head size, F width of the MLP, L
layers, V vocabulary (padded, if the program pads it). A product of (M,K) and (K,N) is 2·M·N·K. Attention counts all T×T
scores, as MFU has it: the causal mask does not halve them. Backward is twice forward, for each product has one towards
its input and one towards its weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias


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


@dataclass(frozen=True)
class LlamaShape:
    """Sizes of one step of a Llama: batch B, time T, channels C, heads NH and NKV, MLP width F, layers L, V."""

    batch: int
    time: int
    channels: int
    heads: int
    kv_heads: int
    width: int
    layers: int
    vocabulary: int


Shape: TypeAlias = GPTShape | LlamaShape
ATTENTION = ("attention_scores", "attention_values")  # the parts that grow with the square of T


def forward_flop(shape: Shape) -> dict[str, float]:
    """Matrix FLOP of one forward pass by part, all layers together."""
    return _gpt(shape) if isinstance(shape, GPTShape) else _llama(shape)


def _gpt(shape: GPTShape) -> dict[str, float]:
    """qkv 2·B·T·C·3C, scores and attention values 2·B·NH·T·T·(C/NH) each, projection 2·B·T·C·C, mlp 2 · 2·B·T·C·4C,
    each × L; logits 2·B·T·C·V once.
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


def _llama(shape: LlamaShape) -> dict[str, float]:
    """queries 2·B·T·C·C, keys and values 2·B·T·C·(2·NKV·HS), scores and attention values 2·B·NH·T·T·HS each (heads that
    share keys multiply all the same), projection 2·B·T·C·C, mlp 3 · 2·B·T·C·F, each × L; logits 2·B·T·C·V once.
    """
    n, c, layers = shape.batch * shape.time, shape.channels, shape.layers
    size = c // shape.heads
    attention = 2.0 * shape.batch * shape.heads * shape.time**2 * size * layers
    return {
        "queries": 2.0 * n * c * c * layers,
        "keys_values": 2.0 * n * c * 2 * shape.kv_heads * size * layers,
        "attention_scores": attention,
        "attention_values": attention,
        "projection": 2.0 * n * c * c * layers,
        "mlp": 3 * 2.0 * n * c * shape.width * layers,
        "logits": 2.0 * n * c * shape.vocabulary,
    }


def matmul_flop(shape: Shape) -> dict[str, dict[str, float]]:
    """Matrix FLOP by pass and part: {"forward": {part: FLOP}, "backward": {…}, "step": {…}}, each with a "total"."""
    forward = forward_flop(shape)
    passes = {"forward": 1, "backward": 2, "step": 3}
    result = {name: {part: factor * flop for part, flop in forward.items()} for name, factor in passes.items()}
    for parts in result.values():
        parts["total"] = sum(parts.values())
    return result


def generation_flop(shape: Shape, prompt: int, tokens: int) -> tuple[dict[str, float], dict[str, float]]:
    """Matrix FLOP by part of generating `tokens` tokens after a prompt: for the prompt's pass, and for all others.

    The first token comes with the prompt. Logits are of the last position alone. The prompt's attention counts all of
    its scores, that of a later token those over the positions up to its own.
    """
    one = forward_flop(replace(shape, time=1))
    passes = tokens - 1
    seen = passes * prompt + passes * (passes + 1) / 2  # positions that the later tokens look at, their own included
    first = {part: flop * (prompt**2 if part in ATTENTION else prompt) for part, flop in one.items()}
    later = {part: flop * (seen if part in ATTENTION else passes) for part, flop in one.items()}
    return first | {"logits": one["logits"]}, later
