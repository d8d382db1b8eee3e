"""A model's weights in a file, as every reader of checkpoints gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Tensors = Callable[[], Iterator[tuple[str, Any]]]


@dataclass(frozen=True)
class Checkpoint:
    """Weights in a file: `tensors()` yields names with numpy arrays or tensors.

    `dimensions` are what makes two models of a kind interchangeable, as the workload's presets name them.
    """

    path: Path
    dimensions: Mapping[str, Any]
    tensors: Tensors
