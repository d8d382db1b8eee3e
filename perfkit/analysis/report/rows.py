"""The rows of a kernel table that count: judged by their roofs, with labels and places, and as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perfkit.analysis.report import aggregate
from perfkit.analysis.report.aggregate import LabelledRows, group_of
from perfkit.analysis.results import ModuleNode
from perfkit.analysis.roofline.excluded import judge_rows
from perfkit.columns import Coded
from perfkit.hardware.ceilings import Ceilings
from perfkit.profile_names import OPTIMIZER
from perfkit.table import KernelTable
from perfkit.tree import nodes
from perfkit.tree.places import places_of

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.readers.run import Run

STEP = "step"  # the root of the tree


def ceilings_of(content: dict[str, Any] | None) -> tuple[Ceilings | None, list[str]]:
    """The ceilings of a run, or why they are missing."""
    if content is None:
        return None, []
    try:
        ceilings = msgspec.convert(content, Ceilings)
    except msgspec.ValidationError as error:
        return None, [f"the run's ceilings are damaged: efficiency and headroom are unknown ({error})"]
    return (ceilings, list(ceilings.warnings)) if ceilings.bandwidth else (None, ["the run's ceilings are empty"])


def in_steps(table: KernelTable) -> pd.DataFrame:
    """The rows that count: with a duration, and in a marked step where any row is in one."""
    return _in_steps(table.frame)


def counted(table: KernelTable) -> pd.DataFrame:
    """The same rows in the form in which the table has them, which may be a `columns.Frame`."""
    return _in_steps(table.rows)


def _in_steps(frame: Any) -> Any:
    frame = frame[frame["duration_ns"].notna()]
    marked = frame["step"].notna()
    return frame[marked] if marked.any() else frame


def steps_of(frame: pd.DataFrame, table: KernelTable) -> int:
    """The steps that the rows are of: as the reader says, else as many as are marked."""
    stated = table.facts.get("steps")
    return int(stated) if stated else max(int(frame["step"].nunique()), 1)


def marked_for(run: Run, backend: str) -> pd.DataFrame | None:
    """Rows by which those of `backend` that have no module are placed: eager's of the same run."""
    eager = run.tables.get("eager")
    return in_steps(eager) if eager is not None and backend != "eager" else None


def rows_of(
    frame: pd.DataFrame, ceilings: Ceilings | None, table: KernelTable, marked: pd.DataFrame | None = None
) -> aggregate.LabelledRows:
    """The rows of `frame`, a part of `table`, judged by `ceilings`, with their labels and places.

    Rows without a module are placed by `marked`, rows of a run of the same step, where it is given.
    """
    family_code, families = frame["family"].astype(object).fillna("other").factorize()
    judged, excluded = judge_rows(frame, ceilings, table.facts)
    placed = frame
    if marked is not None:
        from perfkit.tree.aligned import align_places

        placed = align_places(frame, marked)
    return aggregate.LabelledRows(
        judged=judged,
        excluded=excluded,
        steps=steps_of(frame, table),
        places=places_of(placed, ("family",)),
        family_code=family_code,
        families=[str(family) for family in families],
        names=_words(frame["name"]),
        short_names=_words(frame["short_name"].fillna(frame["name"])),
        shapes=_words(frame["shapes"].fillna("")),
    )


def _words(column: Any) -> Coded | list[str]:
    """The words of a column without absent ones."""
    return column if isinstance(column, Coded) else list(column.tolist())


def module_tree(rows: LabelledRows) -> ModuleNode | None:
    """The step as a tree of the modules of the rows' places, in the model's order; None without rows.

    Each has what it and all below it take, fused kernels divided among them.

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
