"""How a Triton source says the grid and the meta-parameters of an implementation.

    def sizes(n, itemsize):
        return {"BLOCK": 2048, "num_warps": 4}

    @launch(sizes, sweep={"BLOCK": (512, 1024, 2048, 4096), "num_warps": (4, 8)})
    def gelu_forward(x, y, n, **meta):
        _gelu_forward[(cdiv(n, meta["BLOCK"]),)](x, y, n, **meta)

The function takes the input tensors, the output tensors, then the operation's scalars, like a kernel in any language.
Its meta-parameters follow from the scalars alone, by a rule written in the source: nothing is tuned while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Parameters = Mapping[str, int]


@dataclass(frozen=True)
class TritonLaunch:
    """One implementation, ready to be called: `function` launches its kernels with the meta-parameters `rule` gives.

    `rule(*scalars, itemsize)` gives the meta-parameters of a call, itemsize being the bytes of an element of the
    working precision. `sweep` holds the values worth trying, by name. `fixed` overrides what the rule gives.
    """

    function: Callable[..., None]
    rule: Callable[..., Parameters]
    sweep: Mapping[str, Sequence[int]] = field(default_factory=dict)
    fixed: Parameters = field(default_factory=dict)

    def __call__(self, *arguments: Any, itemsize: int) -> None:
        """Launch on tensors and scalars."""
        self.function(*arguments, **self.parameters(_scalars(arguments), itemsize))

    def parameters(self, scalars: Sequence[int | float], itemsize: int) -> Parameters:
        """The meta-parameters of a call with these scalars."""
        return {**self.rule(*scalars, itemsize=itemsize), **self.fixed}

    def using(self, **parameters: int) -> TritonLaunch:
        """Return the launch with some meta-parameters given. Raises `ValueError` for an unknown one."""
        unknown = sorted(set(parameters) - set(self.sweep))
        if unknown:
            raise ValueError(f"no meta-parameter called {', '.join(unknown)}; there are: {', '.join(self.sweep)}")
        return replace(self, fixed={**self.fixed, **parameters})

    def variants(self) -> list[Parameters]:
        """Every combination of the values in the sweep."""
        return [dict(zip(self.sweep, values, strict=True)) for values in product(*self.sweep.values())]


def launch(
    rule: Callable[..., Parameters], sweep: Mapping[str, Sequence[int]] | None = None
) -> Callable[[Callable[..., None]], TritonLaunch]:
    """Mark the function that launches an implementation's kernels; see `TritonLaunch` for `rule` and `sweep`."""
    return lambda function: TritonLaunch(function, rule, sweep or {})


def _scalars(arguments: Sequence[int | float | Tensor]) -> list[int | float]:
    return [a for a in arguments if isinstance(a, int | float)]


def row_tile(columns: int, elements: int) -> tuple[int, int]:
    """(ROWS, COLUMNS), powers of two, of a block of about `elements` elements of a matrix with `columns` columns.

    COLUMNS divides the columns where the divisor is at least 64, and is the next power of two up to 1024 otherwise.
    """
    divisor = columns & -columns
    width = min(1024, divisor if divisor >= 64 else 1 << max(columns - 1, 0).bit_length())
    return max(1, elements // width), width
