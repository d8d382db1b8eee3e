"""What is benchmarked: an operation with its inputs, its reference, its cost, and the ways to compute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfkit.cost.model import Cost

if TYPE_CHECKING:
    from torch import Tensor

Outputs = Mapping[str, "Tensor"]


@dataclass(frozen=True)
class Prepared:
    """A way made ready for given arguments: `call` computes once; `checked` gives fresh results by output's name.

    `reset` undoes what calls changed in place; it runs before each sample, which then holds few calls.
    """

    call: Callable[[], Any]
    checked: Callable[[], Outputs]
    parameters: Mapping[str, int] = field(default_factory=dict)
    reset: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Way:
    """One way to compute the operation: "pytorch", "compile", "naive", or an implementation such as "c:2".

    `prepare(arguments, dtype)` builds it, in several variants where it has block sizes to choose from; it raises
    `PerfkitError` when it cannot run here. `language` is what `--language` selects by.
    """

    name: str
    language: str
    text: str
    prepare: Callable[[Sequence[Any], str], list[Prepared]]
    optional: bool = False  # runs only when it is asked for by name
    tolerance_factor: float = 1.0  # its limit of error, in tolerances of the operation


PYTORCH = "pytorch"  # the way that is PyTorch's own operator


@dataclass(frozen=True)
class Benchmark:
    """One operation. Sizes are named by letters; `defaults` are those of GPT-2 on a device.

    - `inputs(make, **sizes)`: fresh random arguments; `reference(*arguments)`: outputs by name, in any precision.
    - `cost(arguments)`: minimal FLOP and bytes; None when unknown. `in_place`: whether arguments are changed.
    - `tolerance`: largest error by precision, as in `perfkit.kernels.checking`, and its `growth` with the sizes.
    """

    name: str
    formula: str
    sizes: tuple[str, ...]
    inputs: Callable[..., tuple[Any, ...]]
    reference: Callable[..., Outputs]
    cost: Callable[[Sequence[Any]], Cost | None]
    tolerance: Mapping[str, float]
    defaults: Callable[[str], Mapping[str, int]]
    ways: tuple[Way, ...]
    in_place: bool = False
    growth: Callable[[Mapping[str, int]], float] = lambda sizes: 1.0

    def arguments(self, dtype: str, seed: int, sizes: Mapping[str, int], device: str) -> tuple[Any, ...]:
        """Fresh arguments on `device`, the same for the same seed."""
        from torch import Tensor

        from perfkit.kernels.checking import Inputs

        made = self.inputs(Inputs(dtype, seed), **sizes)
        return tuple(a.to(device) if isinstance(a, Tensor) else a for a in made)
