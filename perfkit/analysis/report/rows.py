"""The rows of a kernel table that count, judged by their roofs, with their labels and places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perfkit.analysis.report import aggregate
from perfkit.analysis.roofline.excluded import judge_rows
from perfkit.columns import Coded
from perfkit.hardware.ceilings import Ceilings
from perfkit.table import KernelTable
from perfkit.tree.places import places_of

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.readers.run import Run


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
