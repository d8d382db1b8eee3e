"""GPT-2, as OpenAI published it: a training step or inference, with explicit or fused attention.

Legend: B batch, T time (sequence length), C channels, NH heads, HS = C / NH head size, V vocabulary.

    idx (B, T) → wte, wpe → x (B, T, C) → blocks → ln_f → lm_head → logits (B, T, V) → loss ()

A block adds two branches to x: attention, which mixes positions, and an MLP of width 4C, which works on each alone.
Modules and parameters are named as in OpenAI's checkpoints; lm_head shares its weight with wte. There is no dropout.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from perfkit.cost.transformer import GPTShape, matmul_flop
from perfkit.errors import UsageError
from perfkit.functional import causal_softmax, merge_heads, split_heads
from perfkit.workloads import Batch, Settings, Workload
from perfkit.workloads.checkpoints import check_dimensions, load_weights, open_checkpoint
from perfkit.workloads.tokens import TokenSource, open_tokens

IGNORED = -1  # a target that does not count


def explicit_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in its parts: q, k, v (B, NH, T, HS) → scores, weights (B, NH, T, T) → (B, NH, T, HS)."""
    scores = q @ k.transpose(-2, -1)
    return causal_softmax(scores, 1.0 / math.sqrt(q.shape[-1])) @ v


def fused_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same in one operator of PyTorch: q, k, v (B, NH, T, HS) → (B, NH, T, HS)."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


ATTENTION = {"explicit": explicit_attention, "sdpa": fused_attention}


class PositionEmbedding(nn.Embedding):
    """Adds to each position its own vector: x (B, T, C) → (B, T, C)."""

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[1], device=x.device)
        return x + F.embedding(positions, self.weight)


class Attention(nn.Module):
    """Causal self-attention over NH heads: x (B, T, C) → (B, T, C)."""

    def __init__(self, channels: int, heads: int, variant: str) -> None:
        super().__init__()
        self.heads = heads
        self.attend = ATTENTION[variant]
        self.c_attn = nn.Linear(channels, 3 * channels)
        self.c_proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = split_heads(self.c_attn(x), self.heads)
        return self.c_proj(merge_heads(self.attend(q, k, v)))


class MLP(nn.Module):
    """Two linear layers with a GELU (tanh form) between: x (B, T, C) → (B, T, 4C) → (B, T, C)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(channels, 4 * channels)
        self.c_proj = nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """One layer: x (B, T, C) → (B, T, C)."""

    def __init__(self, channels: int, heads: int, variant: str) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(channels)
        self.attn = Attention(channels, heads, variant)
        self.ln_2 = nn.LayerNorm(channels)
        self.mlp = MLP(channels)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Loss(nn.Module):
    """Mean cross entropy over the targets that count: logits (B, T, V), targets (B, T) → ()."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if logits.element_size() < 4:
            logits = logits.float()  # bf16's 8 significant bits would hide how the loss falls
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1), ignore_index=IGNORED)


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

    def forward(self, idx: Tensor) -> Tensor:
        x = self.wpe(self.wte(idx))
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.ln_f(x)


class GPT2(nn.Module):
    """The model: tokens idx (B, T), targets (B, T) → logits (B, T, V), loss (), or None without targets."""

    def __init__(self, sizes: Sizes, variant: str = "explicit", recompute: bool = False) -> None:
        super().__init__()
        self.transformer = Transformer(sizes, variant, recompute)
        self.lm_head = nn.Linear(sizes.channels, sizes.vocabulary, bias=False)
        self.loss = Loss()
        self.tie()

    def tie(self) -> None:
        """Let lm_head share the weight (V, C) of wte."""
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        logits = self.lm_head(self.transformer(idx))
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


@torch.no_grad()
def generate(model: nn.Module, idx: Tensor, count: int, context: int) -> Tensor:
    """Append the `count` most likely tokens, one after the other: idx (B, T) → (B, T + count)."""
    for _ in range(count):
        logits, _ = model(idx[:, -context:])
        idx = torch.cat([idx, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    return idx


SIZES = {
    "gpt2": Sizes(12, 12, 768),  # 124M parameters
    "tiny": Sizes(2, 2, 64, vocabulary=512, context=128),
    "medium": Sizes(24, 16, 1024),  # 355M
    "large": Sizes(36, 20, 1280),  # 774M
    "xl": Sizes(48, 25, 1600),  # 1558M
}
BATCH = {"batch_size": 4, "sequence_length": 64}  # that of llm.c's training test


class GPT2Workload(Workload):
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
    sample_name = "tokens"
    takes = frozenset({"weights", "data", "recompute", "optimizer"})
    by_hand = "_gpt2_by_hand.py"

    def build(self, settings: Settings) -> GPT2:
        """The model in fp32 on the CPU, random or with the weights of a file."""
        with torch.device("meta"):  # so that no weight is written twice
            model = GPT2(self._sizes(settings), settings.variant, settings.recompute)
        model.to_empty(device="cpu").tie()
        if settings.weights == "random":
            model.initialise(settings.seed)
        else:
            source = open_checkpoint(settings.weights)
            presets = dict(self.presets) | {settings.preset: self.dimensions(settings)}
            check_dimensions(source, presets, settings.preset)
            load_weights(model, source)
        return model

    def batch(self, settings: Settings, step: int) -> Batch:
        """idx (B, T), and in training targets (B, T): the tokens that follow; int64."""
        rows, length = settings.batch_size, _length(settings)
        tokens = torch.from_numpy(self._tokens(settings).window(step, rows * length))
        idx, targets = tokens[:-1].view(rows, length), tokens[1:].view(rows, length)
        return (idx, targets) if settings.training else (idx,)

    def optimizer(self, model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
        """AdamW with llm.c's constants, in the form that `settings.optimizer` names."""
        form = {} if settings.optimizer == "default" else {settings.optimizer: True}
        return torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, **form)

    def model_flop(self, settings: Settings) -> dict[str, float]:
        """Matrix FLOP of one step by part. What `recompute` does twice counts once, as MFU has it."""
        sizes = self._sizes(settings)
        shape = GPTShape(
            batch=settings.batch_size,
            time=_length(settings),
            channels=sizes.channels,
            heads=sizes.heads,
            layers=sizes.layers,
            vocabulary=sizes.vocabulary,
        )
        parts = matmul_flop(shape)["step" if settings.training else "forward"]
        return {part: settings.grad_accumulation * flop for part, flop in parts.items() if part != "total"}

    def describe_data(self, settings: Settings) -> str:
        """What the tokens come from."""
        return self._tokens(settings).description

    def demonstrate(self, model: nn.Module, settings: Settings) -> str:
        """The most likely continuation of the data's first 16 tokens; nothing without a vocabulary to read it in."""
        tokens = self._tokens(settings)
        if tokens.vocabulary is None:
            return ""
        text = tokens.vocabulary.decode
        device = next(model.parameters()).device
        prompt = torch.from_numpy(tokens.window(0, 15))[None].to(device)
        everything = generate(model, prompt, 16, self._sizes(settings).context)[0].tolist()
        return f"continues {text(everything[:16])!r} → {text(everything[16:])!r}"

    def _sizes(self, settings: Settings) -> Sizes:
        given = self.dimensions(settings)
        sizes = Sizes(**{field.name: given[field.name] for field in fields(Sizes)})
        if sizes.channels % sizes.heads:
            raise UsageError(
                f"{sizes.channels} channels do not divide into {sizes.heads} heads.", "Change one of them."
            )
        return sizes

    def _tokens(self, settings: Settings) -> TokenSource:
        return open_tokens(settings.data, self._sizes(settings).vocabulary, settings.seed, settings.weights)


def _length(settings: Settings) -> int:
    """T, which every preset here gives."""
    assert settings.sequence_length is not None
    return settings.sequence_length
