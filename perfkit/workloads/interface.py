"""The workload interface: a model, its batches and its optimizer in one file.

A workload file defines exactly one subclass of `Workload`. The built-in ones use the same interface as a user's own
file (`perfkit run ./my_model.py`). Legend: B batch, T time (sequence length), C channels, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from perfkit.run_folder import Settings

if TYPE_CHECKING:
    import torch

Batch = tuple["torch.Tensor", ...]


class Workload(ABC):
    """One model that perfkit can run, check, time and profile.

    The model that `build` returns is called as `model(*batch)` and returns `(outputs, loss)`: `outputs` is the tensor
    whose values the correctness check compares, `loss` a scalar, or None when the batch holds no targets (inference).
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
    # Which of the options weights, data, recompute and optimizer the workload honours; the others are refused.
    takes: ClassVar[frozenset[str]] = frozenset()
    # A file beside the workload's own that writes its step by hand (a `perfkit.raw.RawStep`), for the backend llmc.
    by_hand: ClassVar[str] = ""

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

    def optimizer(self, model: torch.nn.Module, settings: Settings) -> torch.optim.Optimizer:
        """The optimizer of the training step; AdamW with PyTorch's defaults unless a workload overrides it."""
        import torch

        return torch.optim.AdamW(model.parameters(), lr=1e-4)

    def model_flop(self, settings: Settings) -> dict[str, float]:
        """FLOP of one step by part, worked out by hand from the dimensions; empty when unknown (no MFU then)."""
        return {}

    def samples_per_step(self, settings: Settings) -> int:
        """How many samples (tokens, for a language model) one step processes."""
        return settings.batch_size * (settings.sequence_length or 1) * settings.grad_accumulation

    def describe_data(self, settings: Settings) -> str:
        """What the batches are made of, in a few words for the report; "" for nothing to say."""
        return ""

    def demonstrate(self, model: torch.nn.Module, settings: Settings) -> str:
        """What goes on after "The trained reference …" to show that it works, as what it generates; "" for nothing."""
        return ""
