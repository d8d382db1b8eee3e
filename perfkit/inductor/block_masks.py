"""The pairs that block masks of flex attention keep, read from the tensors with which compiled graphs are called.

A graph knows of a block mask only its shapes. Which blocks it keeps is in tensors that may be others in the next
call, so each call of a graph with such a mask is noted, and the mask is read when all is over. A kept block counts
whole: which pairs inside it the mask function hides stands nowhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from perfkit.cost.model import Call, TensorSpec
from perfkit.cost.operators import masks
from perfkit.inductor.loops import call_of_flex, is_template

if TYPE_CHECKING:
    import torch

_MOST = 16  # masks of one kernel that are kept until they are read: the latest


@dataclass(frozen=True, eq=False)
class Masked:
    """A flex attention with a block mask, and where the inputs of its graph hold that: the number of partial blocks of
    each row of blocks and their indices, then those of the full blocks. None: the mask has none, or made it inside."""

    call: Call
    place: int  # of the block mask among the call's arguments
    inputs: tuple[int | None, ...]
    block: tuple[int, int]  # queries and keys

    @property
    def is_input(self) -> bool:
        """Return whether the graph is given the mask, rather than makes it."""
        return self.inputs[0] is not None and self.inputs[1] is not None

    def with_pairs(self, pairs: float) -> Call:
        """The call with the number of pairs of one head in the place of the mask."""
        rest = self.call.arguments[self.place + 1 :]
        return replace(self.call, arguments=(*self.call.arguments[: self.place], pairs, *rest))


@dataclass(frozen=True)
class Kept:
    """The kept part of a mask: pairs of one head on average, and blocks of all."""

    pairs: float
    blocks: int
    of: int


@dataclass
class BlockMasks:
    """The masks with which graphs were called, by the number of a graph."""

    _graphs: dict[str, tuple[int, list[Masked]]] = field(default_factory=dict)  # by code
    _seen: dict[tuple[int, Masked], deque[tuple[Any, ...]]] = field(default_factory=dict)

    def expect(self, number: int, code: str, masked: list[Masked]) -> None:
        """Note the masks of calls of the graph whose code is `code`."""
        self._graphs[code] = number, masked

    def called(self, code: str, inputs: Sequence[Any]) -> None:
        """Note the masks among the inputs of a graph that is about to run. Nothing is read yet: a GPU would wait."""
        number, expected = self._graphs.get(code, (0, ()))
        for masked in expected:
            seen = self._seen.setdefault((number, masked), deque(maxlen=_MOST))
            tensors = [None if at is None else inputs[at] for at in masked.inputs]
            mask = (*tensors, *map(_version, tensors))
            if not any(all(one is other for one, other in zip(mask, before, strict=True)) for before in seen):
                seen.append(mask)

    def kept(self, number: int, masked: Masked) -> Kept | None:
        """The part that the mask kept in every call that was seen; None where that differs, or is not known."""
        found = {_kept(masked, mask) for mask in self._seen.get((number, masked), ())}
        return found.pop() if len(found) == 1 else None

    def text(self, number: int, masked: Masked, kernel: str) -> str:
        """A sentence on how far the FLOP of a kernel with this mask are known."""
        if (kept := self.kept(number, masked)) is not None:
            size = " × ".join(map(str, masked.block))
            return (
                f"The FLOP of {kernel} are those of the blocks that its block mask keeps ({kept.blocks} of {kept.of}, "
                f"of {size} scores each); what is masked inside a block counts."
            )
        why = "differs from call to call" if masked.is_input else "is made inside the compiled graph"
        return f"The FLOP of {kernel} are unknown: its block mask {why}."


def of_leaves(leaves: Iterable[Any], graph: Any) -> list[Masked]:
    """The flex attention with a block mask that the leaves of a kernel compute."""
    templates = [leaf.node for leaf in leaves if is_template(leaf) and leaf.node is not None]
    nodes = {node for template in templates for node in template.get_origins()}
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    own = {node: i for i, node in enumerate(inputs)} if getattr(graph, "parent", None) is None else {}
    return [masked for node in nodes if (masked := _masked(node, own)) is not None]


def _masked(node: Any, inputs: dict[Any, int]) -> Masked | None:
    call = call_of_flex(node)
    if call is None:
        return None
    place = 9 if call.name.endswith("_backward") else 4
    mask, specs = node.args[place], call.arguments[place]
    if not isinstance(specs, tuple) or masks.is_dense(specs):
        return None
    # Lengths come before the tensors, the sizes of a block after them.
    first = next((i for i, part in enumerate(specs) if isinstance(part, TensorSpec)), len(specs))
    tensors = mask[first:]
    sizes = [part for part in tensors if isinstance(part, int)]
    if len(sizes) < 2:
        return None  # sizes that change from call to call
    return Masked(call, place, tuple(inputs.get(tensor) for tensor in tensors[:4]), (sizes[0], sizes[1]))


def _version(tensor: Any) -> int | None:
    """How often a tensor was changed in place."""
    return None if tensor is None or tensor.is_inference() else tensor._version


def _kept(masked: Masked, mask: tuple[Any, ...]) -> Kept | None:
    """The kept part of one mask; None where its tensors were changed since."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    tensors, versions = mask[:4], mask[4:]
    if not masked.is_input or versions != tuple(map(_version, tensors)):
        return None
    first = 1 if masked.call.name.endswith("_backward") else 0
    lengths = [masked.call.tensor(first).shape[-2], masked.call.tensor(first + 1).shape[-2]]
    with torch.no_grad(), _disable_current_modes():
        here = [None if tensor is None else tensor.detach().cpu().long() for tensor in tensors]
        rows, columns = (_sizes(length, block) for length, block in zip(lengths, masked.block, strict=True))
        pairs, blocks, heads = 0.0, 0, 1
        for counts, indices in (here[:2], here[2:]):
            if counts is None or indices is None:
                continue
            heads = counts.numel() // counts.shape[-1]
            used = torch.arange(indices.shape[-1]) < counts[..., None]
            widths = columns[indices.clamp(0, len(columns) - 1)] * used
            pairs += float((widths.sum(-1) * rows[: counts.shape[-1]]).sum())
            blocks += int(used.sum())
    return Kept(pairs / heads, blocks, heads * len(rows) * len(columns))


def _sizes(length: int, block: int) -> torch.Tensor:
    """The lengths of the blocks of a dimension; the last one may be shorter."""
    import torch

    ends = torch.arange(block, length + block, block).clamp(max=length)
    return torch.diff(ends, prepend=torch.zeros(1, dtype=torch.long))
