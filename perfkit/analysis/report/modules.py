"""The step as a tree of modules: what each module and all below it take, in the order of the model."""

from __future__ import annotations

from perfkit.analysis.report.aggregate import LabelledRows, group_of
from perfkit.analysis.results import ModuleNode
from perfkit.profile_names import OPTIMIZER
from perfkit.tree import nodes

STEP = "step"


def module_tree(rows: LabelledRows) -> ModuleNode | None:
    """The tree over the modules of the rows' places, fused kernels divided among them; None without rows.

    Where no row has a module of the model it is the root alone, which holds the sums.
    """
    places = rows.places
    seen = places.first[places.lines["kind"].to_numpy(int)]
    root = nodes.by_module(places.lines, rows.lines, seen)
    if root is None:
        return None
    if {child.key[0] for child in root.children} <= {nodes.NO_MODULE, OPTIMIZER}:
        root.children = []
    return _of_node(root, rows)


def _of_node(node: nodes.Node, rows: LabelledRows) -> ModuleNode:
    path, amounts = ".".join(map(str, node.key)), node.amounts[0]
    assert amounts is not None, "a node without lines"
    total = group_of(path or STEP, amounts, rows)
    name = str(node.key[-1]) if node.key else STEP
    return ModuleNode(name=name, path=path, total=total, children=[_of_node(child, rows) for child in node.children])
