"""Files of AMD's rocprofv3: `kernel_trace.csv` and `memory_copy_trace.csv`, and the JSON of `--output-format json`.

Grid sizes are work-items, as HSA counts them: blocks are grid over workgroup. A CSV names GPUs by their place among all
agents, of which processors are the first; the JSON numbers GPUs by themselves.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfkit.errors import InputError
from perfkit.readers.gpu_lists import KERNEL, Listed, table_of, whole
from perfkit.readers.gpu_lists.csv_rows import Row, cells_of, rows_of
from perfkit.table import KernelTable

FULL = "torch.profiler records AMD GPUs with operators and shapes: `perfkit capture -- COMMAND`."
AGAIN = "Record it again: `rocprofv3 --kernel-trace --memory-copy-trace -f csv -- COMMAND`."
_KERNELS, _COPIES = "kernel_trace", "memory_copy_trace"
_AXES = ("x", "y", "z")
_DIRECTION = {
    "HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD", "HOST_TO_HOST": "HtoH",
}  # fmt: skip
_NUMBER = re.compile(r"(\d{1,6})\s*$")


def is_header(line: str) -> bool:
    """Return whether a line is the header of a list of kernels or copies."""
    cells = {cell.lower() for cell in cells_of(line)}
    of_kernels, of_copies = {"kind", "kernel_name"} <= cells, {"kind", "direction"} <= cells
    return (of_kernels or of_copies) and {"start_timestamp", "end_timestamp"} <= cells


def read_csv(path: Path) -> KernelTable:
    """Read a list of kernels or copies, and with a list of kernels that of copies next to it.

    Raises `InputError` for one that is damaged or lists nothing that ran.
    """
    listed = Listed()
    paths = [path]
    beside = path.with_name(path.name.replace(_KERNELS, _COPIES))
    if beside != path and beside.is_file():
        paths.append(beside)
    for one in paths:
        for row in rows_of(one, is_header)[1]:
            _add_row(listed, {name.lower(): value for name, value in row.items()})
    facts = {"lists": [one.name for one in paths]}
    return table_of(listed, path, "rocprofv3", facts, FULL)


def _add_row(listed: Listed, row: Row) -> None:
    """Add a row of a CSV."""
    start, end = whole(row["start_timestamp"]), whole(row["end_timestamp"])
    if start is None or end is None:
        listed.unread += 1
        return
    numbers: dict[str, int | None] = {
        "start": start, "end": end, "correlation": whole(row.get("correlation_id")),
        "stream": _known(row, "stream_id", "queue_id"),
    }  # fmt: skip
    if "direction" in row:
        device = "source_agent_id" if "DEVICE_TO" in row["direction"] else "destination_agent_id"
        add_copy(listed, row["direction"], {**numbers, "device": _agent(row.get(device))})
        return
    size = {a: _known(row, f"workgroup_size_{a}") for a in _AXES}
    grid = {a: _known(row, f"grid_size_{a}") for a in _AXES}
    listed.add(KERNEL, bare(row["kernel_name"]), {
        **numbers, **launch_of(grid, size), "device": _agent(row.get("agent_id")),
        "registers": _known(row, "vgpr_count"), "shared_bytes": _known(row, "lds_block_size", "group_segment_size"),
    })  # fmt: skip


def _known(row: Mapping[str, str], *names: str) -> int | None:
    """The number of the first of these columns that the list has."""
    return next((whole(row[name]) for name in names if name in row), None)


def _agent(text: str | None) -> int | None:
    """The number of an agent, which newer versions write as `Agent 2`."""
    found = _NUMBER.search(text or "")
    return int(found[1]) if found else None


def launch_of(grid: Mapping[str, int | None], size: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return blocks and threads of a block of a launch, from its work-items and those of a workgroup."""
    found: dict[str, int | None] = {}
    for axis in _AXES:
        items, threads = grid[axis], size[axis]
        found[f"block_{axis}"] = threads
        found[f"grid_{axis}"] = -(-items // threads) if items and threads and threads > 0 else None
    return found


def bare(name: str) -> str:
    """Return a kernel's name without the ending of its descriptor."""
    return name.removesuffix(".kd").replace(" [clone .kd]", "")


def add_copy(listed: Listed, said: str, numbers: dict[str, int | None]) -> None:
    """Add a copy; `said` is its direction as rocprofv3 spells it."""
    direction = _DIRECTION.get(said.removeprefix("MEMORY_COPY_"), "")
    listed.add_copy(direction, f"Memcpy {direction or 'of unknown direction'}", numbers)


def read_json(path: Path) -> KernelTable:
    """Read the JSON of a process. Raises `InputError` for one that is damaged, or holds nothing that ran."""
    listed, gpus = Listed(), list[dict[str, Any]]()
    try:
        for process in _document(path)["rocprofiler-sdk-tool"]:
            gpus += _add_process(listed, process)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError(f"{path} is damaged: it is not as rocprofv3 writes it ({error}).", AGAIN) from error
    return table_of(listed, path, "rocprofv3", {"gpus": gpus}, FULL)


def _document(path: Path) -> Any:
    opened = gzip.open if path.open("rb").read(2) == b"\x1f\x8b" else open
    try:
        with opened(path, "rb") as file:
            return json.loads(file.read())
    except (OSError, EOFError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: it is cut off or no JSON.", AGAIN) from error


def _add_process(listed: Listed, process: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Add what a process ran; its GPUs."""
    agents = {a["id"]["handle"]: a for a in process["agents"]}
    symbols = {s["kernel_id"]: s for s in process["kernel_symbols"]}
    kinds = process.get("strings", {}).get("buffer_records", [])
    directions: list[str] = next((k["operations"] for k in kinds if k["kind"] == "MEMORY_COPY"), [])
    devices = {handle: a.get("logical_node_type_id") for handle, a in agents.items()}
    for row in process["buffer_records"].get("kernel_dispatch", []):
        what, symbol = row["dispatch_info"], symbols.get(row["dispatch_info"]["kernel_id"], {})
        listed.add(KERNEL, bare(symbol.get("formatted_kernel_name") or symbol.get("kernel_name", "")), {
            **_times(row), **launch_of(what["grid_size"], what["workgroup_size"]),
            "device": devices.get(what["agent_id"]["handle"]), "shared_bytes": what["group_segment_size"],
            "registers": symbol.get("arch_vgpr_count"),
        })  # fmt: skip
    for row in process["buffer_records"].get("memory_copy", []):
        said = directions[row["operation"]]
        end = "src_agent_id" if "DEVICE_TO" in said else "dst_agent_id"
        add_copy(listed, said, {**_times(row), "amount": row.get("bytes"), "device": devices.get(row[end]["handle"])})
    used = {row["dispatch_info"]["agent_id"]["handle"] for row in process["buffer_records"].get("kernel_dispatch", [])}
    return [
        {"name": a["product_name"], "smCount": a["cu_count"], "architecture": a["name"]}
        for handle, a in agents.items()
        if handle in used
    ]


def _times(row: Mapping[str, Any]) -> dict[str, int | None]:
    return {
        "start": row["start_timestamp"],
        "end": row["end_timestamp"],
        "correlation": row["correlation_id"]["internal"],
        "stream": row.get("stream_id", {}).get("handle"),
    }
