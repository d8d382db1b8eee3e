"""Running backends over a token file, or over questions with several endings.

Legend: B batch, T time (sequence length), V vocabulary.
"""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from perfkit import backends, statistics
from perfkit.errors import InputError, UsageError
from perfkit.evaluation import questions
from perfkit.evaluation.results import Accuracy, Evaluated, Evaluation, MeanLoss
from perfkit.kernels import mkl
from perfkit.run_folder import Settings
from perfkit.workloads import batch_formats, llmc, loader
from perfkit.workloads.interface import Workload
from perfkit.workloads.tokens import SYNTHETIC, StoredTokens

Progress = Callable[[str], None]
_STEP = 64  # rows of questions are as long as the longest one, up to a multiple of this


def evaluate(
    settings: Settings, named: Mapping[str, str], batches: int, progress: Progress = lambda text: None
) -> Evaluation:
    """The loss of `settings.data`, or the accuracy where it is llm.c's evaluation data, of each backend of `named`.

    `batches` of B sequences of T tokens count, from the beginning of the data; 0: all. Questions all count. A backend
    that fails has a reason and no figures. Raises `UsageError` for a workload other than a language model, `InputError`
    for data that it cannot read or that is too short.
    """
    mkl.choose_vector_functions()
    workload = loader.find(settings.workload)
    if not hasattr(workload, "tokens"):
        raise UsageError(f"{workload.name} predicts no tokens.", "Evaluate gpt2 or llama.")
    path = Path(settings.data).expanduser()
    if path.is_file() and llmc.kind_of(path) == llmc.EVALUATION_DATA:
        task: _Task = _Questions(path, workload, settings)
    else:
        task = _Tokens(workload, settings, batches)
    found = [_evaluated(name, backend, workload, task, progress) for name, backend in named.items()]
    return Evaluation(
        title=workload.title(task.settings), weights=settings.weights, data=task.said, device=settings.device,
        dtype=settings.dtype, batch_size=settings.batch_size, sequence_length=task.length, backends=found,
    )  # fmt: skip


def _evaluated(name: str, backend: str, workload: Workload, task: _Task, progress: Progress) -> Evaluated:
    import torch

    try:
        progress(f"{name}, building the model")
        return task.judge(name, [one.cpu().numpy() for one in _losses(backend, workload, task, name, progress)])
    except Exception as error:  # a backend's failure is its own: the others go on
        return Evaluated(name=name, reason=f"{type(error).__name__}: {error}".split("\n", 1)[0])
    finally:
        gc.collect()
        if task.settings.device != "cpu":
            torch.cuda.empty_cache()


def _losses(backend: str, workload: Workload, task: _Task, name: str, progress: Progress) -> Iterator[Any]:
    """The loss (B, T) of every target of each batch, fp32."""
    import torch
    import torch.nn.functional as F

    settings = task.settings
    torch.manual_seed(settings.seed)
    dtype = {"bf16": torch.bfloat16}.get(settings.dtype, torch.float32)
    torch.set_float32_matmul_precision("high" if settings.dtype == "tf32" else "highest")
    model = workload.build(settings).to(device=settings.device, dtype=dtype).eval()
    program = backends.get(backend).prepare(workload, model, settings)
    for number, (tokens, targets) in enumerate(task.batches(), 1):
        batch = batch_formats.placed((torch.from_numpy(tokens),), settings.device, dtype)
        logits, _ = program.forward(batch)
        assert isinstance(logits, torch.Tensor)
        wanted = torch.from_numpy(targets).to(settings.device).view(-1)
        losses = F.cross_entropy(logits.reshape(len(wanted), -1).float(), wanted, reduction="none")
        yield losses.view(tokens.shape)
        progress(f"{name} · batch {number} of {task.count}")


class _Task(ABC):
    """A task for a model: batches of tokens with their targets, and how its losses are judged."""

    settings: Settings
    said: str  # what the data is
    count: int  # batches
    length: int  # T

    @abstractmethod
    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Tokens and targets, each (B, T)."""

    @abstractmethod
    def judge(self, name: str, losses: Sequence[np.ndarray]) -> Evaluated:
        """Return the figures of the backend `name` from the losses (B, T) of all batches."""


class _Tokens(_Task):
    """Consecutive windows of a text."""

    def __init__(self, workload: Any, settings: Settings, batches: int) -> None:
        assert settings.sequence_length is not None
        self.settings, self.length = settings, settings.sequence_length
        self.source = workload.tokens(settings)
        self.said = self.source.description
        self.size = settings.batch_size * self.length
        self.count = batches
        if isinstance(self.source, StoredTokens):
            self.source.window(0, self.size)  # raises where the data is shorter than one batch
            there = (len(self.source.tokens) - 1) // self.size
            self.count = min(batches, there) or there
        elif not batches:
            raise UsageError(f"--batches 0 means all, and {SYNTHETIC} tokens do not end.", "Give a number, or a file.")
        self.first: np.ndarray | None = None  # the first backend's loss of each sequence

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number in range(self.count):
            tokens = self.source.window(number, self.size)
            yield tokens[:-1].reshape(-1, self.length), tokens[1:].reshape(-1, self.length)

    def judge(self, name: str, losses: Sequence[np.ndarray]) -> Evaluated:
        each = np.concatenate([one.astype(np.float64).mean(axis=1) for one in losses])
        if not np.isfinite(each).all():
            return Evaluated(name=name, reason="Its loss is not finite.")
        above = None if self.first is None else statistics.mean((each - self.first).tolist())
        self.first = each if self.first is None else self.first
        loss = MeanLoss(tokens=len(each) * self.length, mean=statistics.mean(each.tolist()), above=above)
        return Evaluated(name=name, loss=loss)


class _Questions(_Task):
    """A row for each ending of each question."""

    def __init__(self, path: Path, workload: Workload, settings: Settings) -> None:
        self.examples = llmc.read_evaluation(path)
        if not self.examples:
            raise InputError(f"{path} holds no questions.")
        dimensions = workload.dimensions(settings)
        self._fits(path, dimensions["vocabulary"])
        needed = questions.longest(self.examples)
        if needed > dimensions["context"]:
            raise InputError(
                f"A question of {path} has {needed + 1} tokens; the model's context is {dimensions['context']}.",
                "Leave it out.",
            )
        self.length = min(-(-needed // _STEP) * _STEP, dimensions["context"])
        self.settings = msgspec.structs.replace(settings, sequence_length=self.length)
        self.said = f"{path.name} ({len(self.examples):,} questions)"
        endings = sum(len(e.completions) for e in self.examples)
        self.count = -(-endings // settings.batch_size)
        self.first: list[int] | None = None  # the first backend's answers

    def _fits(self, path: Path, vocabulary: int) -> None:
        largest = max(max((*e.context, *(t for c in e.completions for t in c)), default=0) for e in self.examples)
        if largest >= vocabulary:
            raise InputError(f"{path} holds the token {largest}; the model's vocabulary has {vocabulary}.")

    def _rows(self) -> Iterator[questions.TokenRows]:
        return questions.batches(self.examples, self.settings.batch_size, self.length)

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for rows in self._rows():
            yield rows.tokens, rows.targets

    def judge(self, name: str, losses: Sequence[np.ndarray]) -> Evaluated:
        sums, counts = [], []
        for rows, found in zip(self._rows(), losses, strict=True):
            sums += np.where(rows.scored, found.astype(np.float64), 0.0).sum(axis=1).tolist()
            counts += rows.scored.sum(axis=1).tolist()
        if not np.isfinite(sums).all():
            return Evaluated(name=name, reason="Its loss is not finite.")
        by_mean, by_sum = questions.answers(self.examples, sums, counts)
        labels = [example.label for example in self.examples]
        right = sum(a == b for a, b in zip(by_mean, labels, strict=True))
        differs = None if self.first is None else sum(a != b for a, b in zip(by_mean, self.first, strict=True))
        self.first = by_mean if self.first is None else self.first
        accuracy = Accuracy(
            questions=len(labels), right=right, right_by_sum=sum(a == b for a, b in zip(by_sum, labels, strict=True)),
            share=statistics.share(right, len(labels)), differs=differs,
        )  # fmt: skip
        return Evaluated(name=name, accuracy=accuracy)
