"""The step as a tree of modules: what each module and all below it take, in the order of the model.

That order is the one in which the forward pass comes to the modules; the numbered blocks of a list go by their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.analysis.aggregate import Rows, group_of, sums
from perfkit.analysis.results import Node
from perfkit.analysis.roofline import Integers, Reals

STEP = "step"
UNPLACED = "no module"
_LAST = {"optimizer": 1, UNPLACED: 2}  # what is no module of the model
_LATE = ("backward", "optimizer")  # passes that come to the modules in another order
_OWN_ROOT = "(root)"  # work of the model itself, outside its submodules


def module_tree(rows: Rows, code: Integers, modules: Sequence[str]) -> Node | None:
    """The tree over `modules` (paths; "" for rows without one), `code` giving each row's; None without rows.

    Rows are in launch order, which gives the tree its own.
    """
    if not len(code):
        return None
    own, seen = sums(rows, code, len(modules)), _first_seen(rows, code, len(modules))
    lines: dict[str, Reals] = {"": np.zeros(own.shape[1])}
    first: dict[str, int] = {}
    for path, line, at in zip(modules, own, seen.tolist(), strict=True):
        for ancestor in _way(path):
            lines[ancestor] = lines.get(ancestor, np.zeros(own.shape[1])) + line
            first[ancestor] = min(first.get(ancestor, at), at)
    children: dict[str, list[str]] = {}
    for path in lines:
        if path:
            children.setdefault(_parent(path), []).append(path)
    return _node("", lines, {parent: _in_order(paths, first) for parent, paths in children.items()}, rows)


def _first_seen(rows: Rows, code: Integers, modules: int) -> Integers:
    """The first row of each module, those of the backward and the optimizer behind all others."""
    late = np.array([name in _LATE for name in rows.passes], dtype=bool)[rows.pass_code]
    seen = np.full(modules, 2 * len(code), np.int64)
    np.minimum.at(seen, code, np.arange(len(code)) + late * len(code))
    return seen


def _way(path: str) -> list[str]:
    """Every node that a module's rows count in, from the step down."""
    if not path:
        return ["", UNPLACED]
    parts = path.split(".") if path != _OWN_ROOT else [path]
    return ["", *(".".join(parts[: i + 1]) for i in range(len(parts)))]


def _parent(path: str) -> str:
    return path.rpartition(".")[0] if path != _OWN_ROOT else ""


def _name(path: str) -> str:
    return path.rpartition(".")[2]


def _in_order(siblings: Sequence[str], first: Mapping[str, int]) -> list[str]:
    """The children of one node: numbered ones by number (2 before 10), others as the step comes to them.

    What is no module of the model is last.
    """
    if all(_name(path).isdecimal() for path in siblings):
        return sorted(siblings, key=lambda path: int(_name(path)))
    return sorted(siblings, key=lambda path: (_LAST.get(path, 0), first[path]))


def _node(path: str, lines: dict[str, Reals], children: dict[str, list[str]], rows: Rows) -> Node:
    below = [_node(child, lines, children, rows) for child in children.get(path, [])]
    return Node(name=_name(path) or STEP, path=path, total=group_of(path or STEP, lines[path], rows), children=below)
