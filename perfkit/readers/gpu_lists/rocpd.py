"""The database of rocprofv3 (`--output-format rocpd`, SQLite): kernels and copies of one or several processes.

Each process has tables of its own, whose names end with its number: `rocpd_kernel_dispatch_0001…`. Grids are in
work-items.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfkit.errors import InputError
from perfkit.readers.gpu_lists import KERNEL, Listed, table_of
from perfkit.readers.gpu_lists.rocprof import AGAIN, FULL, add_copy, bare, launch_of
from perfkit.readers.nsys.database import ABSENT, Database, opened
from perfkit.table import KernelTable

_KERNELS, _COPIES = "rocpd_kernel_dispatch", "rocpd_memory_copy"
_AXES = ("x", "y", "z")
_SIZES = tuple(f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in _AXES)
Row = dict[str, int | None]


def read_database(path: Path) -> KernelTable:
    """Read the database at `path`. Raises `InputError` for one that is damaged, or holds nothing that ran."""
    listed, gpus = Listed(), list[dict[str, Any]]()
    with opened(path, AGAIN) as database:
        ends = [name.removeprefix(_KERNELS) for name in database.tables if name.startswith(_KERNELS)]
        for end in ends:
            gpus += _add_process(listed, database, end)
    if not ends:
        raise InputError(f"{path} is a database of rocprofv3 without kernels.", AGAIN)
    return table_of(listed, path, "rocprofv3", {"gpus": gpus}, FULL)


def _add_process(listed: Listed, database: Database, end: str) -> list[dict[str, Any]]:
    """Add what a process ran; its GPUs."""
    agents = {entry["id"]: entry for entry in _rows(database, f"rocpd_info_agent{end}", ("id", "type_index"))}
    devices = {number: entry["type_index"] for number, entry in agents.items()}
    names = _named(database, f"rocpd_info_kernel_symbol{end}", "display_name", "kernel_name")
    registers = {
        entry["id"]: entry["arch_vgpr_count"]
        for entry in _rows(database, f"rocpd_info_kernel_symbol{end}", ("id", "arch_vgpr_count"))
    }
    used = set[int | None]()
    wanted = ("start", "end", "agent_id", "kernel_id", "stream_id", "group_segment_size", *_SIZES)
    for row in _rows(database, f"{_KERNELS}{end}", wanted):
        used.add(row["agent_id"])
        sizes = ({a: row[f"{what}_size_{a}"] for a in _AXES} for what in ("grid", "workgroup"))
        listed.add(KERNEL, bare(names.get(row["kernel_id"], "")), {
            "start": row["start"], "end": row["end"], "stream": row["stream_id"],
            "device": devices.get(row["agent_id"]), "shared_bytes": row["group_segment_size"],
            "registers": registers.get(row["kernel_id"]), **launch_of(*sizes),
        })  # fmt: skip
    words = _named(database, f"rocpd_string{end}", "string")
    copies = ("start", "end", "name_id", "src_agent_id", "dst_agent_id", "size", "stream_id")
    for row in _rows(database, f"{_COPIES}{end}", copies):
        said = words.get(row["name_id"], "")
        agent = row["src_agent_id" if "DEVICE_TO" in said else "dst_agent_id"]
        add_copy(listed, said, {
            "start": row["start"], "end": row["end"], "stream": row["stream_id"], "amount": row["size"],
            "device": devices.get(agent),
        })  # fmt: skip
    models = _named(database, f"rocpd_info_agent{end}", "product_name", "name")
    return [
        {"name": models.get(number, "AMD GPU"), "id": devices.get(number)}
        for number in sorted(entry for entry in used if entry is not None)
    ]


def _rows(database: Database, table: str, columns: tuple[str, ...]) -> Iterator[Row]:
    """The rows of a table, None where a number is not known."""
    found = database.integers(table, columns)
    for values in zip(*(found[column].tolist() for column in columns), strict=True):
        yield {name: None if value == ABSENT else value for name, value in zip(columns, values, strict=True)}


def _named(database: Database, table: str, *columns: str) -> dict[int | None, str]:
    """The first text in `columns` of each row, by its id."""
    rows = database.texts(table, ("id", *columns))
    return {int(number): next(filter(None, words), "") for number, *words in rows if number.lstrip("-").isdecimal()}
