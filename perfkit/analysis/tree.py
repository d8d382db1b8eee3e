"""The step as a tree of modules: what each module and all below it take."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from perfkit.analysis.aggregate import Rows, group_of, sums
from perfkit.analysis.results import Node
from perfkit.analysis.roofline import Integers, Reals

STEP = "step"
UNPLACED = "no module"
_OWN_ROOT = "(root)"  # work of the model itself, outside its submodules


def module_tree(rows: Rows, code: Integers, modules: Sequence[str]) -> Node | None:
    """The tree over `modules` (paths; "" for rows without one), `code` giving each row's; None without rows."""
    if not len(code):
        return None
    own = sums(rows, code, len(modules))
    lines: dict[str, Reals] = {"": np.zeros(own.shape[1])}
    for path, line in zip(modules, own, strict=True):
        for ancestor in _way(path):
            lines[ancestor] = lines.get(ancestor, np.zeros(own.shape[1])) + line
    children: dict[str, list[str]] = {}
    for path in lines:
        if path:
            children.setdefault(_parent(path), []).append(path)
    return _node("", lines, children, rows)


def _way(path: str) -> list[str]:
    """Every node that a module's rows count in, from the step down."""
    if not path:
        return ["", UNPLACED]
    parts = path.split(".") if path != _OWN_ROOT else [path]
    return ["", *(".".join(parts[: i + 1]) for i in range(len(parts)))]


def _parent(path: str) -> str:
    return path.rpartition(".")[0] if path != _OWN_ROOT else ""


def _node(path: str, lines: dict[str, Reals], children: dict[str, list[str]], rows: Rows) -> Node:
    name = path.rpartition(".")[2] or STEP
    below = [_node(child, lines, children, rows) for child in sorted(children.get(path, []), key=_natural)]
    return Node(name=name, path=path, total=group_of(path or STEP, lines[path], rows), children=below)


def _natural(path: str) -> list[tuple[int, int, str]]:
    """Numbers in paths by value (h.2 before h.10); what is no module of the model last."""
    last = path in (UNPLACED, "optimizer")
    parts = [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"\.", path)]
    return [(int(last), 0, ""), *parts]
