"""A GPT-2 in which every layer has a width of its own, so that shapes alone determine the layer of a kernel.

Legend: B batch, T time, C_l channels of layer l, E and F those before the first and after the last layer, NH heads,
V vocabulary. Between two layers stands a projection without a bias: the only operators with the widths of two layers.

    idx (B, T) → wte, wpe (B, T, E) → bridge 0 → layer 0 (B, T, C_0) → bridge 1 → … → (B, T, F) → ln_f → lm_head
"""

import itertools

import torch
import torch.nn.functional as F
from torch import nn

from perfkit.functional import causal_softmax, merge_heads, split_heads
from perfkit.workloads import Settings, Workload

# No two of these, of 3 · C, 4 · C and C / NH, of B · T, T and V, are equal.
WIDTHS = (40, 56)
BEFORE, BEHIND = 24, 36
HEADS, VOCABULARY, BATCH, TIME = 2, 300, 3, 17


class Attention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.c_attn = nn.Linear(channels, 3 * channels)
        self.c_proj = nn.Linear(channels, channels)

    def forward(self, x):
        q, k, v = split_heads(self.c_attn(x), HEADS)
        weights = causal_softmax(q @ k.transpose(-2, -1), q.shape[-1] ** -0.5)
        return self.c_proj(merge_heads(weights @ v))


class MLP(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(channels, 4 * channels)
        self.c_proj = nn.Linear(4 * channels, channels)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(channels)
        self.attn = Attention(channels)
        self.ln_2 = nn.LayerNorm(channels)
        self.mlp = MLP(channels)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, BEFORE)
        self.wpe = nn.Embedding(TIME, BEFORE)
        widths = (BEFORE, *WIDTHS, BEHIND)
        pairs = itertools.pairwise(widths)
        self.bridges = nn.ModuleList(nn.Linear(before, after, bias=False) for before, after in pairs)
        self.h = nn.ModuleList(Block(channels) for channels in WIDTHS)
        self.ln_f = nn.LayerNorm(BEHIND)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for bridge, block in zip(self.bridges, self.h, strict=False):
            x = block(bridge(x))
        return self.ln_f(self.bridges[-1](x))


class Loss(nn.Module):
    def forward(self, logits, targets):
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transformer = Transformer()
        self.lm_head = nn.Linear(BEHIND, VOCABULARY, bias=False)
        self.loss = Loss()

    def forward(self, idx, targets=None):
        logits = self.lm_head(self.transformer(idx))
        return logits, None if targets is None else self.loss(logits, targets)


class Widths(Workload):
    name = "widths"
    summary = "GPT-2 with a width of its own in every layer"
    presets = {"small": {"batch_size": BATCH, "sequence_length": TIME}}
    passes = {
        "encoder": ("transformer.wte", "transformer.wpe"),
        "classifier": ("transformer.ln_f", "lm_head", "loss"),
    }
    layers = "transformer.h.*"
    by_hand = "_widths_by_hand.py"

    def build(self, settings: Settings) -> nn.Module:
        torch.manual_seed(settings.seed)
        return Model()

    def batch(self, settings: Settings, step: int):
        tokens = torch.randint(VOCABULARY, (BATCH, TIME + 1), generator=torch.Generator().manual_seed(step))
        idx, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        return (idx, targets) if settings.training else (idx,)
