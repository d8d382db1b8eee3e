"""Shared parts of decoder-only language models: loss, batches of tokens, optimizer, generation.

Legend: B batch, T time (sequence length), V vocabulary.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from perfkit.cost.model import ITEM_BYTES
from perfkit.cost.transformer import Shape, forward_flop, generation_flop
from perfkit.errors import UsageError
from perfkit.functional import linear_cross_entropy
from perfkit.run_folder import Phase, Settings
from perfkit.workloads.caching import Cache
from perfkit.workloads.checkpoints import check_dimensions, load_weights, open_checkpoint
from perfkit.workloads.interface import Batch, Workload
from perfkit.workloads.tokens import TokenSource, open_tokens

IGNORED = -1  # a target that does not count
BATCH = {"batch_size": 4, "sequence_length": 64}  # that of llm.c's training test
SHOWN = 16  # tokens of the prompt, and as many that are generated, where a model shows that it works


class Loss(nn.Module):
    """Mean cross entropy over the targets that count: logits (B, T, V), targets (B, T) → ()."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy of logits (B, T, V) in fp32; targets of `IGNORED` do not count."""
        if logits.element_size() < 4:
            logits = logits.float()  # bf16's 8 significant bits would hide how the loss falls
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1), ignore_index=IGNORED)


class HeadLoss(nn.Module):
    """Mean cross entropy of a head that it applies itself: x (B, T, C), its weight (V, C), targets (B, T) → ()."""

    def forward(self, x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of x (B, T, C) and the head's weight, without whole logits."""
        return linear_cross_entropy(x.view(-1, x.shape[-1]), weight, targets.view(-1), IGNORED)


@torch.no_grad()
def generate(model: nn.Module, idx: Tensor, count: int, context: int) -> Tensor:
    """Append the `count` most likely tokens, one after the other: idx (B, T) → (B, T + count)."""
    for _ in range(count):
        logits, _ = model(idx[:, -context:])
        idx = torch.cat([idx, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    return idx


class LanguageModel(Workload):
    """A language model with AdamW on tokens of a text, of an llm.c file, or synthetic.

    Its model takes idx (B, T) and in training targets (B, T), and returns the loss and logits (B, T, V), or what
    enters a head whose logits stay inside the loss. Its presets have the dimensions `vocabulary` and `context`, the
    longest T.
    """

    sample_name = "tokens"
    takes = frozenset({"weights", "data", "recompute", "optimizer", "generate"})

    @abstractmethod
    def model(self, settings: Settings) -> nn.Module:
        """The model, of any weights; it is called where tensors have no memory (`torch.device("meta")`)."""

    @abstractmethod
    def fill(self, model: nn.Module, settings: Settings) -> None:
        """Give the model that `model` made, whose tensors have memory now, what no checkpoint holds: tied weights,
        tables. Weights are read or drawn after it."""

    @abstractmethod
    def initialise(self, model: nn.Module, settings: Settings) -> None:
        """Draw the weights, seeded by `settings.seed`."""

    @abstractmethod
    def shape(self, settings: Settings) -> Shape:
        """The sizes of one step, by which its FLOP are counted."""

    @abstractmethod
    def cache_shape(self, settings: Settings) -> tuple[int, int, int]:
        """Layers, heads of keys and values, and head size: what is kept of every position."""

    def build(self, settings: Settings) -> nn.Module:
        """The model in fp32 on the CPU, random or with the weights of a file."""
        with torch.device("meta"):  # so that no weight is written twice
            model = self.model(settings)
        model.to_empty(device="cpu")
        self.fill(model, settings)
        if settings.weights == "random":
            self.initialise(model, settings)
        else:
            source = open_checkpoint(settings.weights, self.name)
            presets = dict(self.presets) | {settings.preset: self.dimensions(settings)}
            check_dimensions(source, presets, settings.preset)
            load_weights(model, source)
        return model

    def batch(self, settings: Settings, step: int) -> Batch:
        """idx (B, T), and in training targets (B, T): the tokens that follow; int64."""
        rows, length = settings.batch_size, length_of(settings)
        tokens = torch.from_numpy(self.tokens(settings).window(step, rows * length))
        idx, targets = tokens[:-1].view(rows, length), tokens[1:].view(rows, length)
        return (idx, targets) if settings.training else (idx,)

    def optimizer(self, model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
        """AdamW with llm.c's constants, in the form that `settings.optimizer` names."""
        form: dict[str, Any] = {} if settings.optimizer == "default" else {settings.optimizer: True}
        return torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, **form)

    def model_flop(self, settings: Settings) -> dict[str, float]:
        """Matrix FLOP of one step by part; a backward has two products for each of the forward.

        What `recompute` does twice counts once, as MFU has it.
        """
        if settings.generate:
            prefill, decode = generation_flop(self.shape(settings), length_of(settings), settings.generate)
            return {part: flop + decode[part] for part, flop in prefill.items()}
        times = 3 * settings.grad_accumulation if settings.training else 1
        return {part: times * flop for part, flop in forward_flop(self.shape(settings)).items()}

    def samples_per_step(self, settings: Settings) -> int:
        """Return the number of tokens that a step processes, or that it makes where it generates."""
        if settings.generate:
            return settings.batch_size * settings.generate
        return super().samples_per_step(settings)

    def cache(self, model: nn.Module, settings: Settings) -> Cache:
        """Room for the keys and values of the prompt and of all that is generated, where the model is."""
        layers, heads, size = self.cache_shape(settings)
        parameter = next(model.parameters())
        shape = (settings.batch_size, heads, length_of(settings) + settings.generate, size)
        return [(parameter.new_zeros(shape), parameter.new_zeros(shape)) for _ in range(layers)]

    def phases(self, model: nn.Module, settings: Settings) -> list[Phase]:
        """Return the phases of generation: a pass over the prompt, and one for each token after the first.

        Every pass reads all weights once, but of an embedding only the tokens' rows, and the cache of the positions up
        to its own. Elements have the size of the run's precision, whatever that of `model`: a reference's is higher.
        """
        rows, prompt, passes = settings.batch_size, length_of(settings), settings.generate - 1
        layers, heads, size = self.cache_shape(settings)
        width = ITEM_BYTES[settings.dtype]
        weights = width * weights_read(model)
        of_position = 2.0 * layers * heads * size * width * rows
        first, later = generation_flop(self.shape(settings), prompt, settings.generate)
        prefill = Phase(
            name="prefill", runs=1, tokens=rows * prompt, flop=sum(first.values()), weight_bytes=weights,
            cache_bytes=of_position * prompt,
        )  # fmt: skip
        if not passes:
            return [prefill]
        decode = Phase(
            name="decode", runs=passes, tokens=rows, flop=sum(later.values()) / passes, weight_bytes=weights,
            cache_bytes=of_position * (prompt + (passes + 1) / 2),
        )  # fmt: skip
        return [prefill, decode]

    def describe_data(self, settings: Settings) -> str:
        """Return the source of the tokens."""
        return self.tokens(settings).description

    def demonstrate(self, model: nn.Module, settings: Settings) -> str:
        """The most likely continuation of the data's first tokens; nothing without a vocabulary to read it in."""
        tokens = self.tokens(settings)
        if tokens.vocabulary is None:
            return ""
        text = tokens.vocabulary.decode
        device = next(model.parameters()).device
        prompt = torch.from_numpy(tokens.window(0, SHOWN - 1))[None].to(device)
        everything = generate(model, prompt, SHOWN, self.dimensions(settings)["context"])[0].tolist()
        return f"continues {text(everything[:SHOWN])!r} → {text(everything[SHOWN:])!r}"

    def tokens(self, settings: Settings) -> TokenSource:
        """Return the tokens that batches are cut from."""
        return open_tokens(settings.data, self.dimensions(settings)["vocabulary"], settings.seed, settings.weights)


def weights_read(model: nn.Module) -> float:
    """Count the parameters that a pass reads whole: all but embeddings that are not also a linear layer's weight."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    embeddings -= {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)}
    return float(sum(p.numel() for p in model.parameters() if id(p) not in embeddings))


def length_of(settings: Settings) -> int:
    """T, which every preset of a language model gives."""
    assert settings.sequence_length is not None
    return settings.sequence_length


def divided(what: str, number: int, into: str, parts: int) -> int:
    """`number` / `parts`. Raises `UsageError` where that is not a whole number: "64 channels … into 3 heads"."""
    if number % parts:
        raise UsageError(f"{number} {what} do not divide into {parts} {into}.", "Change one of them.")
    return number // parts
