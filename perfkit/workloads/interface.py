"""The workload interface: a model, its batches and its optimizer in one file.

A workload file defines exactly one subclass of `Workload`. The built-in ones use the same interface as a user's own
file (`perfkit run ./my_model.py`). Legend: B batch, T time (sequence length), C channels, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from perfkit.run_folder import Phase, Settings

if TYPE_CHECKING:
    import torch

# A tensor; a tuple, the model's positional arguments; or a mapping, its arguments by name.
Batch: TypeAlias = Any


class Workload(ABC):
    """One model that perfkit can run, check, time and profile.

    The model that `build` returns is called with the batch: `model(*batch)` of a tuple, `model(**batch)` of a mapping,
    `model(batch)` of a tensor. It returns `(outputs, loss)`, or a mapping or an object with a `loss`, as those of
    transformers do; with a method `loss` or `step` it may return anything. All tensors except the loss are outputs,
    which the correctness check compares. Without targets in the batch (inference) there need be no loss.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    # Preset name → dimensions, passed to `build` through `dimensions`; the first is the default. `batch_size` and
    # `sequence_length` in a preset are the defaults of those options.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    # Dimension → what it may be, where not any value of its type will do.
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    # Names of alternative forms of the model; the first is the default.
    variants: ClassVar[tuple[str, ...]] = ()
    # Pass → module path patterns (fnmatch). Forward work in a module that matches none is in pass "forward".
    passes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Module path patterns of the repeated blocks, with one * where the index stands, such as "transformer.h.*".
    layers: ClassVar[str] = ""
    sample_name: ClassVar[str] = "samples"
    # Which of the options weights, config, data, recompute, optimizer and generate the workload honours; the others are
    # refused.
    takes: ClassVar[frozenset[str]] = frozenset()
    # A file next to the workload's own that writes its step by hand (a `perfkit.handwritten.RawStep`): backend llmc.
    by_hand: ClassVar[str] = ""
    # Name that `--parallel` gives the workload's own way to share its model (`shard`), the default with --ranks.
    parallel: ClassVar[str] = ""

    def dimensions(self, settings: Settings) -> dict[str, Any]:
        """The preset's dimensions, those that `--dim` gives otherwise replaced, as a dict of its own."""
        return dict(self.presets[settings.preset]) | settings.dimensions

    @abstractmethod
    def build(self, settings: Settings) -> torch.nn.Module:
        """Make the model in fp32 on the CPU, with weights seeded by `settings.seed` or read from `settings.weights`."""

    @abstractmethod
    def batch(self, settings: Settings, step: int) -> Batch:
        """The batch of step `step` on the CPU, the same for the same settings and step in every process.

        With `settings.training` the batch holds the targets.
        """

    def loss(self, outputs: Any, batch: Batch) -> torch.Tensor:
        """Optional: the loss () of what the model returned for `batch`, in training, where the model gives none."""
        raise NotImplementedError

    def step(self, model: Any, batch: Batch, optimizer: Any) -> Any:
        """Optional: a whole training step, in the place of perfkit's forward, backward and optimizer step.

        `model` is called as the backend has it; `optimizer` is what `optimizer` returned. What is returned counts as
        what a model returns: `(outputs, loss)`, a loss alone, a mapping. A step of its own does not accumulate
        gradients.
        """
        raise NotImplementedError

    def shard(self, model: torch.nn.Module, rank: int, ranks: int) -> None:
        """Leave in `model` what this one of several `ranks` holds, for the way that `parallel` names.

        Every rank is called alike, with the same model. What remains keeps its names. The rest of the ranks hold the
        parameters that are gone, and each parameter that remains on all of them is trained as by DDP; of the others the
        model itself gives the gradient of the mean of all ranks' losses.
        """
        raise NotImplementedError

    def has(self, method: str) -> bool:
        """Return whether this workload defines the optional method `loss` or `step`."""
        return getattr(type(self), method) is not getattr(Workload, method)

    def check(self, settings: Settings) -> None:  # noqa: B027 - most workloads have nothing to look at
        """Look at `settings` before anything runs. Raises `PerfkitError` for those that cannot be run."""

    def title(self, settings: Settings) -> str:
        """Return the name of a run of this workload in reports."""
        return self.name if settings.preset == self.name else f"{self.name} {settings.preset}"

    def optimizer(self, model: torch.nn.Module, settings: Settings) -> torch.optim.Optimizer:
        """The optimizer of the training step; AdamW with PyTorch's defaults unless a workload overrides it."""
        import torch

        return torch.optim.AdamW(model.parameters(), lr=1e-4)

    def model_flop(self, settings: Settings) -> dict[str, float]:
        """FLOP of one step by part, worked out by hand from the dimensions; empty when unknown (no MFU then)."""
        return {}

    def samples_per_step(self, settings: Settings) -> int:
        """Return the number of samples (tokens, for a language model) of one step."""
        return settings.batch_size * (settings.sequence_length or 1) * settings.grad_accumulation

    def describe_data(self, settings: Settings) -> str:
        """Return the source of the batches in a few words for the report; "" for nothing to say."""
        return ""

    def cache(self, model: torch.nn.Module, settings: Settings) -> Any:
        """Return an empty cache of the tokens seen: the model's argument `cache` where a step generates."""
        raise NotImplementedError

    def phases(self, model: torch.nn.Module, settings: Settings) -> list[Phase]:
        """Return the work of each phase of a step that generates, derived by hand; [] for another step."""
        return []

    def demonstrate(self, model: torch.nn.Module, settings: Settings) -> str:
        """Return the rest of the sentence "The trained reference …" that shows that it works; "" for nothing."""
        return ""
