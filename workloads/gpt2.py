"""GPT-2, as OpenAI published it: a training step or inference, with explicit or fused attention.

Legend: B batch, T time (sequence length), C channels, NH heads, HS = C / NH head size, V vocabulary.

    idx (B, T) → wte, wpe → x (B, T, C) → blocks → ln_f → lm_head → logits (B, T, V) → loss ()

A block adds two branches to x: attention, which mixes positions, and an MLP of width 4C, which works on each alone.
Modules and parameters are named as in OpenAI's checkpoints; lm_head shares its weight with wte. It has no dropout.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from perfkit.cost.transformer import GPTShape
from perfkit.functional import causal_softmax, merge_heads, split_heads
from perfkit.workloads import Settings
from perfkit.workloads.caching import Cache, Greedy, KeysValues, attend_cached
from perfkit.workloads.language import BATCH, LanguageModel, Loss, divided, length_of


def explicit_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in its parts: q, k, v (B, NH, T, HS) → scores, weights (B, NH, T, T) → (B, NH, T, HS)."""
    scores = q @ k.transpose(-2, -1)
    return causal_softmax(scores, 1.0 / math.sqrt(q.shape[-1])) @ v


def fused_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return causal attention by one operator of PyTorch: q, k, v (B, NH, T, HS) → (B, NH, T, HS)."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


ATTENTION = {"explicit": explicit_attention, "sdpa": fused_attention}


class PositionEmbedding(nn.Embedding):
    """Adds to each position its own vector: x (B, T, C) → (B, T, C); T = 1 at `position` (1)."""

    def forward(self, x: Tensor, position: Tensor | None = None) -> Tensor:
        """x (B, T, C) → (B, T, C)."""
        positions = torch.arange(x.shape[1], device=x.device) if position is None else position
        return x + F.embedding(positions, self.weight)


class Attention(nn.Module):
    """Causal self-attention over NH heads: x (B, T, C) → (B, T, C).

    With `past`, keys and values are kept there, and of one `position` attention is over all that were kept.
    """

    def __init__(self, channels: int, heads: int, variant: str) -> None:
        super().__init__()
        self.heads = heads
        self.attend = ATTENTION[variant]
        self.c_attn = nn.Linear(channels, 3 * channels)
        self.c_proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor, past: KeysValues | None = None, position: Tensor | None = None) -> Tensor:
        """x (B, T, C) → (B, T, C)."""
        q, k, v = split_heads(self.c_attn(x), self.heads)
        y = self.attend(q, k, v) if past is None else attend_cached(self.attend, q, k, v, past, position)
        return self.c_proj(merge_heads(y))


class MLP(nn.Module):
    """Two linear layers with a GELU (tanh form) between: x (B, T, C) → (B, T, 4C) → (B, T, C)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(channels, 4 * channels)
        self.c_proj = nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, C) → (B, T, C)."""
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """One layer: x (B, T, C) → (B, T, C)."""

    def __init__(self, channels: int, heads: int, variant: str) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(channels)
        self.attn = Attention(channels, heads, variant)
        self.ln_2 = nn.LayerNorm(channels)
        self.mlp = MLP(channels)

    def forward(self, x: Tensor, past: KeysValues | None = None, position: Tensor | None = None) -> Tensor:
        """x (B, T, C) → (B, T, C)."""
        x = x + self.attn(self.ln_1(x), past, position)
        return x + self.mlp(self.ln_2(x))


@dataclass(frozen=True)
class Sizes:
    """The dimensions of a GPT-2: layers, NH, C, V, and the longest T."""

    layers: int
    heads: int
    channels: int
    vocabulary: int = 50257
    context: int = 1024


class Transformer(nn.Module):
    """Everything before the head: tokens idx (B, T) → (B, T, C).

    With `recompute`, the backward computes each block's activations again instead of keeping them.
    """

    def __init__(self, sizes: Sizes, variant: str, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.wte = nn.Embedding(sizes.vocabulary, sizes.channels)
        self.wpe = PositionEmbedding(sizes.context, sizes.channels)
        self.h = nn.ModuleList(Block(sizes.channels, sizes.heads, variant) for _ in range(sizes.layers))
        self.ln_f = nn.LayerNorm(sizes.channels)

    def forward(self, idx: Tensor, cache: Cache | None = None, position: Tensor | None = None) -> Tensor:
        """idx (B, T) → (B, T, C)."""
        x = self.wpe(self.wte(idx), position)
        for i, block in enumerate(self.h):
            if self.recompute:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x, cache[i] if cache is not None else None, position)
        return self.ln_f(x)


class GPT2(nn.Module):
    """The model: tokens idx (B, T), targets (B, T) → logits (B, T, V), loss (), or None without targets.

    With a cache, the tokens' keys and values are kept there: those of a prompt, or one token's (B, 1) at `position`
    (1). It returns the last position's logits (B, 1, V) and the most likely token (B, 1) then.
    """

    def __init__(self, sizes: Sizes, variant: str = "explicit", recompute: bool = False) -> None:
        super().__init__()
        self.transformer = Transformer(sizes, variant, recompute)
        self.lm_head = nn.Linear(sizes.channels, sizes.vocabulary, bias=False)
        self.loss = Loss()
        self.choose = Greedy()
        self.tie()

    def tie(self) -> None:
        """Let lm_head share the weight (V, C) of wte."""
        self.lm_head.weight = self.transformer.wte.weight

    def forward(
        self, idx: Tensor, targets: Tensor | None = None, cache: Cache | None = None, position: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """idx (B, T), targets (B, T) → logits (B, T, V), loss () or None; see the class for a cache."""
        x = self.transformer(idx, cache, position)
        if cache is not None:
            logits = self.lm_head(x[:, -1:])
            return logits, self.choose(logits)
        logits = self.lm_head(x)
        return logits, None if targets is None else self.loss(logits, targets)

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """GPT-2's own start: N(0, 0.02), projections into the residual narrower, biases 0, LayerNorm 1 and 0."""
        generator = torch.Generator().manual_seed(seed)
        residual = 0.02 / math.sqrt(2 * len(self.transformer.h))
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif ".ln_" in name:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, residual if name.endswith("c_proj.weight") else 0.02, generator=generator)


SIZES = {
    "gpt2": Sizes(12, 12, 768),  # 124M parameters
    "tiny": Sizes(2, 2, 64, vocabulary=512, context=128),
    "medium": Sizes(24, 16, 1024),  # 355M
    "large": Sizes(36, 20, 1280),  # 774M
    "xl": Sizes(48, 25, 1600),  # 1558M
}


class GPT2Workload(LanguageModel):
    """GPT-2 with AdamW on tokens of a text, of an llm.c file, or synthetic."""

    name = "gpt2"
    summary = "GPT-2 (tiny to 1.5B): a training step or inference"
    presets = {name: asdict(sizes) | BATCH for name, sizes in SIZES.items()}
    variants = tuple(ATTENTION)
    passes = {
        "encoder": ("transformer.wte", "transformer.wpe"),
        "classifier": ("transformer.ln_f", "lm_head", "loss"),
    }
    layers = "transformer.h.*"
    by_hand = "_gpt2_by_hand.py"

    def model(self, settings: Settings) -> GPT2:
        """The model of these sizes, without its weights."""
        return GPT2(self._sizes(settings), settings.variant, settings.recompute)

    def fill(self, model: nn.Module, settings: Settings) -> None:
        """Tie the head to the embedding again."""
        assert isinstance(model, GPT2)
        model.tie()

    def initialise(self, model: nn.Module, settings: Settings) -> None:
        """Draw GPT-2's initial weights."""
        assert isinstance(model, GPT2)
        model.initialise(settings.seed)

    def shape(self, settings: Settings) -> GPTShape:
        """The sizes that a step's FLOP follow from."""
        sizes = self._sizes(settings)
        return GPTShape(
            batch=settings.batch_size,
            time=length_of(settings),
            channels=sizes.channels,
            heads=sizes.heads,
            layers=sizes.layers,
            vocabulary=sizes.vocabulary,
        )

    def cache_shape(self, settings: Settings) -> tuple[int, int, int]:
        """Layers, NH and HS."""
        sizes = self._sizes(settings)
        return sizes.layers, sizes.heads, sizes.channels // sizes.heads

    def _sizes(self, settings: Settings) -> Sizes:
        given = self.dimensions(settings)
        sizes = Sizes(**{field.name: given[field.name] for field in fields(Sizes)})
        divided("channels", sizes.channels, "heads", sizes.heads)
        return sizes
