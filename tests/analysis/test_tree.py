"""The order of the module tree: that of the model. Its sums: `test_roofline.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfkit import table
from perfkit.analysis.report.analyse import analyse_table
from perfkit.analysis.results import ModuleNode


def children(parts: list[dict[str, Any]], path: str = "") -> list[str]:
    """Names of the children of the node `path` in the tree over rows of these passes, modules and times."""
    rows = [{"name": "a", "order": i, "duration_ns": 1.0, **part} for i, part in enumerate(parts)]
    tree = analyse_table(table.build(rows), None, "p").backends[0].tree
    assert tree is not None
    node = next(n for n in nodes(tree) if n.path == path)
    return [child.name for child in node.children]


def nodes(node: ModuleNode) -> Iterator[ModuleNode]:
    yield node
    for child in node.children:
        yield from nodes(child)


def test_modules_stand_in_the_order_in_which_the_step_comes_to_them() -> None:
    parts = [{"module": m} for m in (None, "optimizer", "wte", "(root)", "h.10.mlp", "h.2.mlp", "h.2.attn", "ln_f")]
    assert children(parts) == ["wte", "(root)", "h", "ln_f", "optimizer", "no module"]
    assert children(parts, "h") == ["2", "10"]  # by number, whichever ran first
    assert children(parts, "h.2") == ["mlp", "attn"]


def test_the_order_of_modules_is_that_of_the_forward_not_of_time_nor_of_the_backward() -> None:
    there = [{"module": m, "pass": "forward"} for m in ("embed", "encoder.1", "encoder.0", "head")]
    reverse = ("tied", "head", "encoder.1", "encoder.0", "embed")
    back = [{"module": m, "pass": "backward", "duration_ns": 9.0} for m in reverse]
    assert children([*back, *there]) == children([*there, *back]) == ["embed", "encoder", "head", "tied"]
    assert children([*back, *there], "encoder") == ["0", "1"]
