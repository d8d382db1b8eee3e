"""Nsight Compute: reports (`.ncu-rep`) and the pages that `ncu` prints, as kernel tables.

table = read_report(Path("profile.ncu-rep"))
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.errors import PerfkitError
from perfkit.readers.sniff import unpacked

if TYPE_CHECKING:
    from perfkit.table import KernelTable

CSV_READER = "ncu-csv"


def read_report(path: Path) -> KernelTable:
    """Read a report into a kernel table (see `perfkit.readers.ncu.rows.make_table` for its `facts`).

    Uses NVIDIA's package ncu-report, else an `ncu` on the PATH. Raises `InputError` for a file that is missing, damaged
    or incomplete, `Unavailable` where neither is installed.
    """
    with unpacked(path) as report:
        try:
            table = _read_report(report)
        except PerfkitError as error:
            raise type(error)(error.message.replace(str(report), str(path)), error.hint) from error
    table.source["path"] = str(path)
    return table


def _read_report(path: Path) -> KernelTable:
    from perfkit.readers.ncu import child, container

    stated = container.check(path)
    if child.package_folder() is None:
        from perfkit.readers.ncu import tool

        if tool.find():
            return tool.read(path, stated)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(child.read_results, path, stated)
        import pandas  # noqa: F401  takes as long as reading a small report: both at once

        from perfkit.instructions.results import CODE
        from perfkit.readers.ncu.code import read_code
        from perfkit.readers.ncu.rows import EXACT_READER, make_table

        results = reading.result()
        coding = pool.submit(read_code, path, results)
        table = make_table(results, path, EXACT_READER, [])
        table.recorded[CODE], problem = coding.result()
        table.warnings += [problem] if problem else []
        return table


def is_page(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a page that ncu printed, perhaps after lines of the program."""
    from perfkit.readers.ncu import pages

    return pages.is_page(head)


def read_page(path: Path) -> KernelTable:
    """Read a page that ncu printed: raw or details in CSV, details as text. Raises `InputError` for anything else."""
    from perfkit.readers.ncu import pages
    from perfkit.readers.ncu.rows import make_table

    results, warnings = pages.read(path)
    return make_table(results, path, CSV_READER, warnings)
