"""Rows of a CSV file by the names of its columns, after the lines that a tool printed before it."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

from perfkit.errors import InputError

_LONGEST = 1 << 20  # characters of a field: names of kernels with many template arguments are long
Row = dict[str, str]


def cells_of(line: str) -> list[str]:
    """Return the cells of a line that is no longer than a header."""
    return [cell.strip().strip('"') for cell in line.strip().split(",")]


def rows_of(path: Path, is_header: Callable[[str], bool]) -> tuple[list[str], Iterator[Row]]:
    """Return the cells of the first line that `is_header` knows, and the rows under it as mappings from these cells.

    A row with another number of fields (a cut line) maps them all to "". Raises `InputError` for a file that cannot be
    read, or has no such header.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig", errors="replace").replace("\0", "").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    first = next((i for i, line in enumerate(lines) if is_header(line)), None)
    if first is None:
        raise InputError(f"{path} is damaged: its header of columns is missing.", "Write it again.")
    header = cells_of(lines[first])
    csv.field_size_limit(_LONGEST)
    return header, _rows(header, csv.reader(lines[first + 1 :]))


def _rows(header: list[str], lines: Iterator[list[str]]) -> Iterator[Row]:
    while True:
        try:
            line = next(lines, None)
        except csv.Error:  # a field without end: what follows is lost
            line = [""]
        if line is None:
            return
        if line:
            yield dict(zip(header, line, strict=True)) if len(line) == len(header) else dict.fromkeys(header, "")
