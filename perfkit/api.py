"""Result of `perfkit.read`: the kernel tables of a run or profile, and its report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit import readers

if TYPE_CHECKING:
    from perfkit.analysis.results import Report
    from perfkit.readers.run import Run
    from perfkit.table import KernelTable


@dataclass(frozen=True)
class Reading:
    """A run or profile that was read. In a notebook it shows itself as a summary of its report."""

    path: Path
    source: Run | KernelTable

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Reading:
        """Read `path`; raises `InputError` as `perfkit.read` does."""
        return cls(Path(path), readers.read(path))

    @property
    def tables(self) -> dict[str, KernelTable]:
        """Kernel table by backend; a profile's one table is under "profile"."""
        return readers.tables_of(self.source)

    @property
    def table(self) -> KernelTable:
        """The only table, or the first backend's. Raises `InputError` when the run was not profiled."""
        from perfkit.errors import InputError

        table = next(iter(self.tables.values()), None)
        if table is None:
            raise InputError(f"{self.path} holds no kernel table.", "Run the workload again with --profiler torch.")
        return table

    @cached_property
    def report(self) -> Report:
        """The analysis of everything that was read."""
        from perfkit.analysis.report.analyse import analyse_any

        return analyse_any(self.source, self.path)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{name}: {len(table)} rows" for name, table in self.tables.items())
        return f"<perfkit reading of {self.path} ({kinds or 'no kernel table'})>"

    def _repr_html_(self) -> str:
        from perfkit.render import notebook

        return notebook.render(self.report)
