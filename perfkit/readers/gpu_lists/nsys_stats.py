"""`nsys stats --report cuda_gpu_trace --format csv`: a row for each kernel, copy and fill.

Its header names the units that the user chose (`--timeunit`, and MB or bytes of sizes), or is the raw form of
`--format csv:…` with units after a colon (`Start:ts_ns`). Sizes in MB (10⁶ bytes) have three decimals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from perfkit.errors import InputError
from perfkit.readers.gpu_lists import FILL, KERNEL, Listed, table_of, whole
from perfkit.readers.gpu_lists.csv_rows import cells_of, rows_of
from perfkit.table import KernelTable

FULL = "The export itself has the calls and ranges too: `nsys export --type sqlite REPORT.nsys-rep`."
_SIZES = {"b": 1, "byte": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20}
_TIMES = {"ns": 1, "nsec": 1, "us": 10**3, "usec": 10**3, "ms": 10**6, "msec": 10**6, "s": 10**9, "sec": 10**9}
_HEADER = re.compile(r"^(?P<name>[^(:]+?)\s*(?:\((?P<unit>[^)]*)\)|:(?:\w+_)?(?P<raw>\w+))?$")
_EXACT = 1000  # of a size's last digit: rounded below this it is not known to 0.1 %
_DEVICE = re.compile(r"\((\d{1,4})\)\s*$")
_LAUNCH = {
    "grid_x": "GrdX", "grid_y": "GrdY", "grid_z": "GrdZ", "block_x": "BlkX", "block_y": "BlkY", "block_z": "BlkZ",
    "registers": "Reg/Trd",
}  # fmt: skip
_COPY = re.compile(r"\[CUDA (?:Unified Memory )?mem(cpy|set)\s*([\w-]*)", re.IGNORECASE)
_ENDS = {"host": "H", "device": "D", "array": "A", "peer": "P"}


def is_header(line: str) -> bool:
    """Return whether a line is the header of this list."""
    cells = [named(cell)[0] for cell in cells_of(line)]
    return cells[:2] == ["Start", "Duration"] and "GrdX" in cells


def read_gpu_trace(path: Path) -> KernelTable:
    """Read the CSV at `path`. Raises `InputError` for one that is damaged or lists nothing that ran."""
    header, rows = rows_of(path, is_header)
    columns = {name: (column, unit) for column in header for name, unit in [named(column)]}
    if "Name" not in columns:
        raise InputError(f"{path} is damaged: it has no column Name.", FULL)
    listed = Listed()
    for row in rows:
        _add(listed, {name: (row[column], unit) for name, (column, unit) in columns.items()})
    return table_of(listed, path, "nsys stats", {}, FULL)


def named(column: str) -> tuple[str, str]:
    """Return the name of a column, and its unit."""
    found = _HEADER.match(column)
    return (found["name"], (found["unit"] or found["raw"] or "").lower()) if found else (column, "")


def _add(listed: Listed, row: Mapping[str, tuple[str, str]]) -> None:
    """Add one row of the CSV."""
    start, duration = time_of(*row["Start"]), time_of(*row["Duration"])
    if start is None or duration is None:
        listed.unread += 1
        return
    name = row["Name"][0]
    device = _DEVICE.search(row.get("Device", ("", ""))[0])
    common: dict[str, int | None] = {
        "start": start, "end": start + duration, "device": int(device[1]) if device else None,
        "stream": whole(row.get("Strm", ("", ""))[0]), "correlation": whole(row.get("CorrId", ("", ""))[0]),
        "amount": _size(*row.get("Bytes", ("", ""))),
    }  # fmt: skip
    moved = _COPY.match(name)
    if moved is None:
        launch = {to: whole(row.get(of, ("", ""))[0]) for to, of in _LAUNCH.items()}
        shared = [_size(*row.get(part, ("", ""))) for part in ("StcSMem", "DymSMem")]
        launch["shared_bytes"] = None if None in shared else sum(filter(None, shared))
        listed.add(KERNEL, name, {**common, **launch})
    elif moved[1].lower() == "set":
        listed.add(FILL, copy_name(name) or name, common)
    else:
        kinds = [row.get(column, ("", ""))[0] for column in ("SrcMemKd", "DstMemKd")]
        places = f" ({' -> '.join(kinds)})" if all(kinds) else ""
        listed.add_copy(_direction(moved[2]), f"{copy_name(name)}{places}", common)


def copy_name(said: str) -> str | None:
    """Return the name that torch.profiler gives what nsys spells `[CUDA memcpy HtoD]`; None for other names."""
    moved = _COPY.match(said)
    if moved is None or moved[1].lower() == "set":
        return "Memset (Device)" if moved else None
    return f"Memcpy {_direction(moved[2]) or 'of unknown direction'}"


def _direction(way: str) -> str:
    """The direction of a copy, from `HtoD` or `Host-to-Device`; "" where it is neither."""
    ends = [_ENDS.get(word, "") for word in way.lower().split("-to-")]
    return way if "to" in way and "-" not in way else "to".join(ends) if len(ends) == 2 and all(ends) else ""


def time_of(text: str, unit: str) -> int | None:
    """Return a time in ns; None where it is not a number or its unit is unknown."""
    number, scale = whole(text), _TIMES.get(unit)
    if scale is None:
        return None
    if number is not None:
        return number * scale
    try:
        return round(float(text.replace(",", "")) * scale)
    except (ValueError, OverflowError):
        return None


def _size(text: str, unit: str) -> int | None:
    """A size in bytes; None where it is not given, or so small that its rounding matters."""
    scale = _SIZES.get(unit)
    before, _, decimals = text.replace(",", "").strip().partition(".")
    digits = whole(before + decimals)
    if scale is None or digits is None or (scale > 1 and digits < _EXACT):
        return None
    return digits * scale // 10 ** len(decimals)
