"""One tree over the lines of places, with the amounts of one side or of several: reports and comparisons share it.

A line has a key, its way from the root, and a vector of amounts, such as time and bytes. A node sums up the lines at
and below it. Two ways lead to a line:

    by layer     step / pass / layer / operator, where layers are a level of the passes that have any
    by module    step / the parts of the module's path
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfkit.profile_names import BACKWARD, OPTIMIZER, PASSES, ROOT
from perfkit.tree.places import NOT_PLACED, Integers, Reals

if TYPE_CHECKING:
    import pandas as pd

NO_OPERATOR = "no operator"
NO_MODULE = "no module"
NO_LAYER = -1
_LAST = {
    name: rank for rank, name in enumerate(("loading", "between", OPTIMIZER, NO_MODULE), 1)
}  # rows outside modules of the model
_LATE = (BACKWARD, OPTIMIZER)  # passes that come to the modules in another order

Key = tuple[str | int, ...]
Order = Callable[[list["Node"]], list["Node"]]


@dataclass
class Node:
    """A place and everything below it. `amounts` are one vector a side, None of a side that has nothing there."""

    key: Key
    amounts: list[Reals | None]
    children: list[Node] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """This node and all below it, parents before children."""
        yield self
        for child in self.children:
            yield from child.walk()


def grow(sides: Sequence[tuple[Sequence[Key], Reals]], order: Order) -> Node | None:
    """The tree over the lines of `sides`, each with keys and amounts (lines × quantities); None without any line.

    `order` puts the children of one node in order.
    """
    amounts: dict[Key, list[Reals | None]] = {}
    for place, (keys, lines) in enumerate(sides):
        for key, line in zip(keys, lines, strict=True):
            for depth in range(len(key) + 1):
                own = amounts.setdefault(key[:depth], [None] * len(sides))
                before = own[place]
                own[place] = line if before is None else before + line
    if not amounts:
        return None
    nodes = {key: Node(key, own) for key, own in amounts.items()}
    for key, node in nodes.items():
        if key:
            nodes[key[:-1]].children.append(node)
    for node in nodes.values():
        node.children = order(node.children)
    return nodes[()]


def by_layer(sides: Sequence[tuple[pd.DataFrame, Reals]], time: int) -> Node | None:
    """The tree step / pass / layer / operator over the lines of `Places.lines` and their amounts.

    Passes are in their order, layers by number, operators by the time that all sides take, column `time` of the
    amounts. Where no side has layers in a pass, its operators stand right below it.
    """
    layered = {str(p) for lines, _ in sides for p in lines["pass"][lines["layer"].notna()].unique()}

    def keys(lines: pd.DataFrame) -> list[Key]:
        columns = lines["pass"], lines["layer"].fillna(NO_LAYER), lines["operator"].fillna(NO_OPERATOR)
        return [(p, int(n), o) if p in layered else (p, o) for p, n, o in zip(*map(list, columns), strict=True)]

    def order(siblings: list[Node]) -> list[Node]:
        return sorted(siblings, key=lambda node: _rank(node, time))

    return grow([(keys(lines), amounts) for lines, amounts in sides], order)


def _rank(node: Node, time: int) -> tuple[Any, ...]:
    name = node.key[-1]
    if len(node.key) == 1:
        return PASSES.index(str(name)) if name in PASSES else len(PASSES) + (name == NOT_PLACED), name
    return (name,) if isinstance(name, int) else (-sum(side[time] for side in node.amounts if side is not None), name)


def by_module(lines: pd.DataFrame, amounts: Reals, seen: Integers) -> Node | None:
    """The tree of modules over the lines of `Places.lines`, in the order of the model.

    That is the order in which the forward pass comes to the modules: `seen` has for each line the position of the
    first of its rows. The numbered blocks of a list go by their numbers; rows outside modules of the model are last.
    """
    keys = [_way(path) for path in lines["module"].fillna("").tolist()]
    late = lines["pass"].isin(_LATE).to_numpy(bool)
    behind = int(seen.max(initial=0)) + 1
    first: dict[Key, int] = {}
    for key, at in zip(keys, (seen + late * behind).tolist(), strict=True):
        for depth in range(1, len(key) + 1):
            first[key[:depth]] = min(first.get(key[:depth], at), at)
    return grow([(keys, amounts)], lambda siblings: _in_order(siblings, first))


def _way(path: str) -> Key:
    """The key of a module's path, "" where it is unknown."""
    if not path:
        return (NO_MODULE,)
    return tuple(path.split(".")) if path != ROOT else (path,)


def _in_order(siblings: list[Node], first: Mapping[Key, int]) -> list[Node]:
    if all(str(node.key[-1]).isdecimal() for node in siblings):
        return sorted(siblings, key=lambda node: int(node.key[-1]))
    return sorted(siblings, key=lambda node: (_LAST.get(str(node.key[-1]), 0) * (len(node.key) == 1), first[node.key]))
