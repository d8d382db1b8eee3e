"""The record of one operator, and how a family lists its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from perfkit.cost.model import Call, CostFunction

KINDS = ("work", "view", "dispatch", "allocation", "sync")
FAMILIES = (
    "matmul", "attention", "normalization", "softmax", "elementwise", "reduction", "embedding", "loss", "optimizer",
    "copy", "fill", "random", "index", "convolution", "fft", "linalg", "sort", "collective", "other",
)  # fmt: skip

PartsFunction = Callable[[Call], Mapping[str, float]]
VariantFunction = Callable[[Call], str]

# In `delegates`: any working operator below it did the work.
ANY = "*"


@dataclass(frozen=True)
class Operator:
    """One operator by its full name (`aten::addmm`).

    `kind`: work (computes or moves data: a row of the kernel table), view and dispatch (touch no data themselves),
    allocation, sync (waits for a value). `flop` and `traffic` are the formulas as text, for the docs. `delegates`
    names operators that, when this one calls them, do its work: then it is dispatch (`zero_` that calls `fill_`).
    `parts` says of a call which GPU kernels share its work: a pattern of the name of each, and its part of the cost.
    `variant` says in a word or two how a call differs from others with the same shapes (`causal`).
    """

    name: str
    kind: str
    family: str
    cost: CostFunction | None = None
    flop: str = "0"
    traffic: str = "none"
    delegates: tuple[str, ...] = ()
    parts: PartsFunction | None = None
    variant: VariantFunction | None = None


def same(
    names: str,
    family: str,
    cost: CostFunction,
    flop: str,
    traffic: str,
    *,
    kind: str = "work",
    delegates: Iterable[str] = (),
    parts: PartsFunction | None = None,
    variant: VariantFunction | None = None,
) -> list[Operator]:
    """Operators that share one cost function: `names` separated by spaces, without a namespace meaning aten."""
    doers = tuple(map(full_name, delegates))
    return [
        Operator(full_name(name), kind, family, cost, flop, traffic, doers, parts, variant) for name in names.split()
    ]


def full_name(name: str) -> str:
    """`name` with its namespace, aten where none is given."""
    return name if "::" in name or name == ANY else f"aten::{name}"
