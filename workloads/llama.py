"""Llama, as Meta published it from version 2 on: a training step or inference, with explicit or fused attention.

Legend: B batch, T time (sequence length), C channels, NH heads, NKV heads of keys and values, HS = C / NH head size,
F width of the MLP, V vocabulary.

    idx (B, T) → embed_tokens → x (B, T, C) → layers → norm → lm_head → logits (B, T, V) → loss ()
                                                            └──── with logits=inside: loss () ────┘

A layer adds two branches to x: attention, whose NH heads share NKV heads of keys and values, and an MLP with a gate.
Positions turn queries and keys (rotary embedding). Modules and parameters are named as in Hugging Face's checkpoints.
It has no biases and no dropout.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from perfkit.cost.transformer import LlamaShape
from perfkit.functional import (
    causal_softmax,
    grouped_attention,
    merge_heads,
    residual_rms_norm,
    rms_norm,
    rotary,
    swiglu,
)
from perfkit.workloads import Settings
from perfkit.workloads.caching import Cache, Greedy, KeysValues, attend_cached
from perfkit.workloads.language import BATCH, SHOWN, HeadLoss, LanguageModel, Loss, divided, length_of

# Llama 3.1's change of the rotary frequencies: those of waves longer than the context that it was trained with first
# are divided by a factor, those with HIGH waves in it or more are kept, and between the two it is gradual.
FIRST_CONTEXT, LOW, HIGH = 8192, 1.0, 4.0


def explicit_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in its parts: q (B, NH, T, HS), k, v (B, NKV, T, HS) → (B, NH, T, HS).

    The queries of the heads that share keys lie one after the other: each product is one for all of them.
    """
    batch, heads, time, size = q.shape
    groups = k.shape[1]
    shared = (batch, groups, heads // groups * time)
    scores = q.reshape(*shared, size) @ k.transpose(-2, -1)
    weights = causal_softmax(scores.view(batch, heads, time, time), 1.0 / math.sqrt(size))
    return (weights.view(*shared, time) @ v).view(batch, heads, time, size)


ATTENTION = {"explicit": explicit_attention, "sdpa": grouped_attention}


@dataclass(frozen=True)
class Sizes:
    """The dimensions of a Llama: layers, NH, NKV, C, F, V, the longest T, and what its parts are computed with.

    `rope_factor` is Llama 3.1's factor of the rotary frequencies, 1 for none; `head` says whether lm_head shares its
    weight with embed_tokens; `logits` whether a training step returns them, or keeps them inside the loss.
    """

    layers: int
    heads: int
    kv_heads: int
    channels: int
    width: int
    vocabulary: int = 128256
    context: int = 131072
    rope_theta: float = 500000.0
    rope_factor: float = 1.0
    norm_eps: float = 1e-5
    head: str = "untied"
    logits: str = "returned"

    @property
    def head_size(self) -> int:
        """HS."""
        return self.channels // self.heads


class RMSNorm(nn.Module):
    """x / √(mean x² + eps) · weight over the channels; with a branch, of x + branch, which is returned as well."""

    def __init__(self, channels: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(channels))

    def forward(self, x: Tensor, branch: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """x (B, T, C) → (B, T, C); with a branch also their sum."""
        if branch is None:
            return rms_norm(x, self.weight, self.eps)
        return residual_rms_norm(x, branch, self.weight, self.eps)


class Rotary(nn.Module):
    """cos and sin of every position's angles, (rows, HS / 2) each; calling it takes the first T positions.

    They are computed in fp32 and rounded to the model's precision, as transformers does it.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, rows: int, head_size: int) -> None:
        super().__init__()
        for name in ("cos", "sin"):
            self.register_buffer(name, torch.empty(rows, head_size // 2), persistent=False)

    def fill(self, theta: float, factor: float) -> None:
        """Compute the tables for the base `theta`, and Llama 3.1's `factor`."""
        rows, half = self.cos.shape
        angles = torch.arange(rows).float()[:, None] * frequencies(2 * half, theta, factor)
        self.cos.copy_(angles.cos())
        self.sin.copy_(angles.sin())

    def forward(self, time: int, position: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """cos and sin (T, HS / 2) of the first `time` positions, or of one `position` (1)."""
        if position is not None:  # (1): of this one alone
            return self.cos.index_select(0, position), self.sin.index_select(0, position)
        return self.cos[:time], self.sin[:time]


def frequencies(head_size: int, theta: float, factor: float) -> Tensor:
    """The angle that each pair of a head turns by from one position to the next: (HS / 2), fp32."""
    plain = 1.0 / (theta ** (torch.arange(0, head_size, 2).float() / head_size))
    if factor == 1.0:
        return plain
    waves = FIRST_CONTEXT / (2 * math.pi / plain)  # how many fit into the first context
    kept = ((waves - LOW) / (HIGH - LOW)).clamp(0.0, 1.0)
    return (1 - kept) * plain / factor + kept * plain


class Attention(nn.Module):
    """Causal self-attention, NH heads of queries over NKV of keys and values: x (B, T, C) → (B, T, C).

    With `past`, keys and values are kept there, and of one `position` attention is over all that were kept.
    """

    def __init__(self, sizes: Sizes, variant: str) -> None:
        super().__init__()
        self.head_size = sizes.head_size
        self.attend = ATTENTION[variant]
        shared = sizes.kv_heads * sizes.head_size
        self.q_proj = nn.Linear(sizes.channels, sizes.channels, bias=False)
        self.k_proj = nn.Linear(sizes.channels, shared, bias=False)
        self.v_proj = nn.Linear(sizes.channels, shared, bias=False)
        self.o_proj = nn.Linear(sizes.channels, sizes.channels, bias=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, past: KeysValues | None = None, position: Tensor | None = None
    ) -> Tensor:
        """x (B, T, C) → (B, T, C)."""
        q, k, v = (self._heads(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotary(q, k, cos, sin)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = self.attend(q, k, v) if past is None else attend_cached(self.attend, q, k, v, past, position)
        return self.o_proj(merge_heads(y))

    def _heads(self, x: Tensor) -> Tensor:
        """(B, T, n · HS) as (B, T, n, HS)."""
        return x.view(x.shape[0], x.shape[1], -1, self.head_size)


class MLP(nn.Module):
    """silu(x · gate) · (x · up) · down: x (B, T, C) → (B, T, F) → (B, T, C)."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(channels, width, bias=False)
        self.up_proj = nn.Linear(channels, width, bias=False)
        self.down_proj = nn.Linear(width, channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, C) → (B, T, C)."""
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))


class Layer(nn.Module):
    """One layer: x (B, T, C), cos and sin of the positions (T, HS / 2) → (B, T, C)."""

    def __init__(self, sizes: Sizes, variant: str) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(sizes.channels, sizes.norm_eps)
        self.self_attn = Attention(sizes, variant)
        self.post_attention_layernorm = RMSNorm(sizes.channels, sizes.norm_eps)
        self.mlp = MLP(sizes.channels, sizes.width)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, past: KeysValues | None = None, position: Tensor | None = None
    ) -> Tensor:
        """x (B, T, C) → (B, T, C)."""
        branch = self.self_attn(self.input_layernorm(x), cos, sin, past, position)
        x, y = self.post_attention_layernorm(x, branch)
        return x + self.mlp(y)


class Transformer(nn.Module):
    """Everything before the head: tokens idx (B, T) → (B, T, C).

    With `recompute`, the backward computes each layer's activations again instead of keeping them.
    """

    def __init__(self, sizes: Sizes, variant: str, recompute: bool, positions: int) -> None:
        super().__init__()
        self.recompute = recompute
        self.embed_tokens = nn.Embedding(sizes.vocabulary, sizes.channels)
        self.rotary = Rotary(positions, sizes.head_size)
        self.layers = nn.ModuleList(Layer(sizes, variant) for _ in range(sizes.layers))
        self.norm = RMSNorm(sizes.channels, sizes.norm_eps)

    def forward(self, idx: Tensor, cache: Cache | None = None, position: Tensor | None = None) -> Tensor:
        """idx (B, T) → (B, T, C)."""
        x = self.embed_tokens(idx)
        cos, sin = self.rotary(idx.shape[1], position)
        for i, layer in enumerate(self.layers):
            if self.recompute:
                x = checkpoint(layer, x, cos, sin, use_reentrant=False)
            else:
                x = layer(x, cos, sin, cache[i] if cache is not None else None, position)
        return self.norm(x)


class Llama(nn.Module):
    """The model: tokens idx (B, T), targets (B, T) → logits (B, T, V), loss (), or None without targets.

    With targets and the logits inside the loss, it returns what enters the head (B, T, C) in the logits' place: a loss
    of its own makes them a part at a time, or not at all.

    With a cache, the tokens' keys and values are kept there: those of a prompt, or one token's (B, 1) at `position`
    (1). It returns the last position's logits (B, 1, V) and the most likely token (B, 1) then. `positions` is the
    longest T that it is called with, or the length of the cache.
    """

    # Buffers that are the same on all ranks already: DistributedDataParallel need not send them at every step.
    _ddp_params_and_buffers_to_ignore = ("model.rotary.cos", "model.rotary.sin")

    def __init__(self, sizes: Sizes, variant: str, recompute: bool, positions: int) -> None:
        super().__init__()
        self.sizes = sizes
        self.model = Transformer(sizes, variant, recompute, positions)
        self.lm_head = nn.Linear(sizes.channels, sizes.vocabulary, bias=False)
        self.loss = Loss() if sizes.logits == "returned" else HeadLoss()
        self.choose = Greedy()
        self.tie()

    def tie(self) -> None:
        """Let lm_head share the weight (V, C) of embed_tokens, if the sizes say so."""
        if self.sizes.head == "tied":
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(
        self, idx: Tensor, targets: Tensor | None = None, cache: Cache | None = None, position: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """idx (B, T), targets (B, T) → logits (B, T, V), loss () or None; see the class for a cache."""
        x = self.model(idx, cache, position)
        if cache is not None:
            logits = self.lm_head(x[:, -1:])
            return logits, self.choose(logits)
        if targets is not None and self.sizes.logits == "inside":
            return x, self.loss(x, self.lm_head.weight, targets)
        logits = self.lm_head(x)
        return logits, None if targets is None else self.loss(logits, targets)

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """N(0, 0.02), projections into the residual narrower, RMSNorm 1."""
        generator = torch.Generator().manual_seed(seed)
        residual = 0.02 / math.sqrt(2 * len(self.model.layers))
        for name, parameter in self.named_parameters():
            if name.endswith("norm.weight"):
                parameter.fill_(1.0)
            else:
                narrow = name.endswith(("o_proj.weight", "down_proj.weight"))
                parameter.normal_(0.0, residual if narrow else 0.02, generator=generator)


SIZES = {
    "160m": Sizes(12, 12, 4, 768, 3328, 32000, 2048, 10000.0),  # 160M parameters: fits a laptop
    "tiny": Sizes(2, 4, 2, 64, 192, 512, 128, 10000.0),
    "1b": Sizes(16, 32, 8, 2048, 8192, rope_factor=32.0, head="tied"),  # Llama 3.2: 1236M
    "3b": Sizes(28, 24, 8, 3072, 8192, rope_factor=32.0, head="tied"),  # Llama 3.2: 3213M
    "8b": Sizes(32, 32, 8, 4096, 14336, rope_factor=8.0),  # Llama 3.1: 8030M
    "tinyllama": Sizes(22, 32, 4, 2048, 5632, 32000, 2048, 10000.0),  # TinyLlama: 1100M
}


class LlamaWorkload(LanguageModel):
    """Llama with AdamW on tokens of a text, of an llm.c file, or synthetic."""

    name = "llama"
    summary = "Llama (tiny to 8B, grouped heads): a training step or inference"
    presets = {name: asdict(sizes) | BATCH for name, sizes in SIZES.items()}
    choices = {"head": ("tied", "untied"), "logits": ("returned", "inside")}
    variants = tuple(ATTENTION)
    passes = {"encoder": ("model.embed_tokens", "model.rotary"), "classifier": ("model.norm", "lm_head", "loss")}
    layers = "model.layers.*"
    by_hand = "_llama_by_hand.py"

    def model(self, settings: Settings) -> Llama:
        """The model of these sizes, without its weights."""
        sizes = self._sizes(settings)
        positions = min(sizes.context, max(length_of(settings) + settings.generate, 2 * SHOWN))
        return Llama(sizes, settings.variant, settings.recompute, positions)

    def fill(self, model: nn.Module, settings: Settings) -> None:
        """Compute what no checkpoint holds, and tie the head."""
        assert isinstance(model, Llama)
        model.tie()
        model.model.rotary.fill(model.sizes.rope_theta, model.sizes.rope_factor)

    def initialise(self, model: nn.Module, settings: Settings) -> None:
        """Draw the initial weights."""
        assert isinstance(model, Llama)
        model.initialise(settings.seed)

    def shape(self, settings: Settings) -> LlamaShape:
        """Return the sizes from which the FLOP of a step follow."""
        sizes = self._sizes(settings)
        return LlamaShape(
            batch=settings.batch_size,
            time=length_of(settings),
            channels=sizes.channels,
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
            width=sizes.width,
            layers=sizes.layers,
            vocabulary=sizes.vocabulary,
        )

    def cache_shape(self, settings: Settings) -> tuple[int, int, int]:
        """Layers, NKV and HS."""
        sizes = self._sizes(settings)
        return sizes.layers, sizes.kv_heads, sizes.head_size

    def _sizes(self, settings: Settings) -> Sizes:
        given = self.dimensions(settings)
        sizes = Sizes(**{field.name: given[field.name] for field in fields(Sizes)})
        divided("channels", sizes.channels, "heads", sizes.heads)
        divided("heads", sizes.heads, "heads of keys and values", sizes.kv_heads)
        divided("channels of a head", sizes.head_size, "pairs", 2)
        return sizes
