"""Pages that `ncu` prints: in CSV the raw page (a row a kernel) and the details page (a row a metric), the latter as
text too (`text`).

Everything is found by the name in the header, never by position: what a page holds changes with set and version. Lines
before the header (the tool's own, or the profiled program's output) are skipped.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from perfkit.errors import InputError
from perfkit.readers.ncu import labels, metrics, text
from perfkit.readers.ncu.results import NcuResult, NcuRule, is_unit, to_base

_HEADER = re.compile(r'^"?ID"?,.*"?Kernel Name"?', re.MULTILINE)
_NVTX = re.compile(r"(Id:|thread )Domain:Push/Pop_Range:")
_NVTX_FIELDS = 6  # after the name: type and value of payload, type and value of colour, type of message, message
_VALUE = "Metric Value"
_WANTED = re.compile(metrics.WANTED)
# Metrics whose values mean nothing without a unit; a details page scales each to be short.
_SCALED = re.compile(
    rf"{re.escape(metrics.DURATION)}|launch__shared_mem_per_block\w*|\w+__bytes\w*\.sum|.*\.per_second"
)
_RULE_KINDS = {"INF": 1, "OPT": 2, "WRN": 3, "ERR": 4}
_SCOPES = {"local": 1, "global": 2}


def is_page(head: bytes) -> bool:
    """Return whether a file that begins with `head` holds a page of ncu, perhaps after lines of the program."""
    decoded = _decoded(head)
    return bool(_HEADER.search(decoded)) or text.is_page(decoded)


def read(path: Path) -> tuple[list[NcuResult], list[str]]:
    """Kernels of a page, and warnings. Raises `InputError` for a file without any."""
    try:
        content = _decoded(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    return parse(content, str(path))


def parse(content: str, source: str) -> tuple[list[NcuResult], list[str]]:
    """The same from the page's content; `source` names it in errors."""
    try:
        header, rows, odd = _table(content)
    except csv.Error as error:
        raise InputError(f"{source} cannot be read as CSV: {error}.", "Print it again: ncu --csv.") from error
    if not header:
        return _printed(content, source)
    no_units = "Metric Name" not in header and bool(rows) and bool(rows[0].get("ID", "").strip())
    of_metrics = "Metric Name" in header
    results = _details_page(header, rows) if of_metrics else _raw_page(header, rows)
    if not results:
        raise InputError(f"{source} holds no kernels.", "Capture again: did the program launch any?")
    warnings = [f"{odd} lines of the CSV do not fit its header and were left out"] if odd else []
    warnings += [*_unlaunched(results), *(_incomplete(results) if of_metrics else ())]
    if no_units:
        warnings.append("the CSV has no line of units: its values are taken to be in base units (ns, bytes, Hz)")
    if not content.endswith(("\n", "\r", '"')):  # a last field with both quotes is whole, and its line fits the header
        warnings.append("the CSV is cut off within its last line: kernels or metrics may be missing")
    return results, [*warnings, *_gaps(rows)]


def _printed(content: str, source: str) -> tuple[list[NcuResult], list[str]]:
    """The kernels of a page in text, whose values have two decimals."""
    rows = list(text.rows_of(content))
    if not rows:
        raise InputError(
            f"{source} is not a page that ncu printed.", "Print one: ncu --import REPORT --csv --page raw."
        )
    results = _details_page([], rows)
    return results, [*_unlaunched(results), *_incomplete(results), text.ROUNDED]


def _unlaunched(results: list[NcuResult]) -> Iterator[str]:
    """A sentence where kernels have no grid or block: every page has columns of both."""
    if any(f"launch__{what}_dim_x" not in r.values for r in results for what in ("grid", "block")):
        yield "the grid or block of some kernels in the page cannot be read: columns may be missing or mixed up"


def _incomplete(results: list[NcuResult]) -> Iterator[str]:
    """Sentences where a details page lost lines at its end, or the units of its values."""
    if len(results) > 1 and _ends_early(results):
        yield "the last kernel of the page lacks sections that all others have: it may be cut off"
    lost = sorted({name for r in results for name in r.units if _unscaled(name, r.units[name])})
    if lost:
        yield f"the page gives no unit that can be read for {', '.join(lost[:3])}: such values are left out"


def _ends_early(results: list[NcuResult]) -> bool:
    """Return whether the last kernel lacks sections that all others have, all of which come after its last one."""
    *whole, last = results
    lacking = set.intersection(*(set(r.sections) for r in whole)) - set(last.sections)
    order, end = whole[0].sections, last.sections[-1:]
    rest = order[order.index(end[0]) + 1 :] if end and end[0] in order else order
    return bool(lacking) and lacking <= set(rest)


def _unscaled(name: str, unit: str) -> bool:
    return bool(_SCALED.fullmatch(name)) and unit.strip() != "%" and not is_unit(unit)


def _gaps(rows: list[dict[str, str]]) -> list[str]:
    """A sentence where the tool's numbers of the kernels, which count from 0, have gaps or come back."""
    order = [(row.get("Process ID", ""), number(row["ID"])) for row in rows if row["ID"].strip()]
    seen = list(dict.fromkeys(order))
    if [identity for _, identity in seen] == list(range(len(seen))) and (
        len(seen) == len(order) or "Metric Name" in rows[-1]
    ):
        return []
    return ["the numbers of the kernels in the CSV have gaps or repeat: kernels may be missing or be there twice"]


def _decoded(data: bytes) -> str:
    """Text of a file: UTF-8, or UTF-16 as some shells write what they redirect."""
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return data.decode("utf-16" if wide else "utf-8-sig", "replace")


def _table(content: str) -> tuple[list[str], list[dict[str, str]], int]:
    """The header, the rows as mappings, and how many lines did not fit.

    Since 2025 a details page has no cells for a rule on the lines of metrics.
    """
    match = _HEADER.search(content)
    if not match:
        return [], [], 0
    reader = csv.reader(io.StringIO(content[match.start() :].replace("\0", "")))
    header = next(reader)
    least = header.index(_VALUE) + 1 if _VALUE in header else len(header)
    rows, odd = [], 0
    for row in reader:
        if least <= len(row) <= len(header):
            rows.append(dict(zip(header, [*row, *[""] * (len(header) - len(row))], strict=True)))
        elif row and not row[0].startswith("=="):
            odd += 1
    return header, rows, odd


def _raw_page(header: list[str], rows: list[dict[str, str]]) -> list[NcuResult]:
    """A row a kernel; the row after the header holds the units."""
    names = [name for name in header if _WANTED.fullmatch(name)]
    nvtx = [name for name in header if _NVTX.match(name)]
    units = rows.pop(0) if rows and not rows[0].get("ID", "").strip() else {}
    found = []
    for row in rows:
        result = _result(row)
        for name in names:
            _keep(result, name, row[name], units.get(name, ""))
        result.ranges = [r for column in nvtx for r in _ranges(row[column])]
        result.metrics = len(result.values)
        found.append(result)
    return found


def _details_page(header: list[str], rows: list[dict[str, str]]) -> list[NcuResult]:
    """A row a metric or rule, grouped by the kernel's ID and process."""
    found: dict[tuple[str, str], NcuResult] = {}
    nvtx = [name for name in rows[0] if _NVTX.match(name)] if rows else []
    for row in rows:
        result = found.setdefault((row.get("Process ID", ""), row["ID"]), _result(row))
        label, unit = row.get("Metric Name", "").strip(), row.get("Metric Unit", "")
        name = label if _WANTED.fullmatch(label) else labels.metric(label, unit)
        if name and _unscaled(name, unit):
            result.units[name] = unit
        elif name:
            _keep(result, name, row.get("Metric Value", ""), unit)
        section = row.get("Section Name", "").strip()
        if label and section not in result.sections:  # a rule names its section differently, and need not apply
            result.sections.append(section)
        result.ranges = result.ranges or [r for column in nvtx for r in _ranges(row[column])]
        result.rules += _rule(row, section)
        result.metrics = len(result.values)
    return list(found.values())


def _result(row: dict[str, str]) -> NcuResult:
    name = row.get("Kernel Name", "").strip()
    result = NcuResult(name=name, function=labels.function_name(name))
    for column, prefix in (("Block Size", "launch__block_dim_"), ("Grid Size", "launch__grid_dim_")):
        sizes = _sizes(row.get(column, ""))
        result.values.update({f"{prefix}{axis}": size for axis, size in zip("xyz", sizes, strict=False)})
    for column, metric in (("Stream", "launch__stream_id"), ("Device", "launch__device_id")):
        _keep(result, metric, row.get(column, ""), "")
    major, dot, minor = row.get("CC", "").partition(".")
    if dot and major.isdecimal() and minor.isdecimal():
        capability = "device__attribute_compute_capability_"
        result.values.update({f"{capability}major": float(major), f"{capability}minor": float(minor)})
    return result


def _sizes(cell: str) -> list[float]:
    """The three sizes in a cell such as `(1,056, 1, 1)` or `(32,2,1)`; none where there are not three."""
    for pattern in (r"\d+(?:,\d{3})*", r"\d+"):
        found = re.findall(pattern, cell)
        if len(found) == 3:
            return [float(size.replace(",", "")) for size in found]
    return []


def _keep(result: NcuResult, name: str, cell: str, unit: str) -> None:
    """Store a cell as a number in base units, or as text; nothing where it holds no value."""
    value = number(cell)
    if math.isfinite(value):
        result.values[name], result.units[name] = to_base(value, unit), unit
    elif name == "device__attribute_display_name" and cell.strip():
        result.values[name] = cell.strip()


def number(cell: str) -> float:
    """A number as the tool prints it: `1,234.5`, or `1.234,5` where the language wants that; NaN for anything else."""
    cell = cell.strip()
    if "," in cell:
        decimal_comma = cell.rfind(",") > cell.rfind(".") > -1
        cell = cell.replace(".", "").replace(",", ".") if decimal_comma else cell.replace(",", "")
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _rule(row: dict[str, str], section: str) -> Iterable[NcuRule]:
    if not row.get("Rule Name", "").strip() and not row.get("Rule Description", "").strip():
        return ()
    gain = number(row.get("Estimated Speedup", ""))
    return (
        NcuRule(
            name=row.get("Rule Name", "") or section,
            section=section,
            message=row.get("Rule Description", ""),
            kind=_RULE_KINDS.get(row.get("Rule Type", "").strip().upper(), 0),
            speedup=gain if math.isfinite(gain) else None,
            scope=_SCOPES.get(row.get("Estimated Speedup Type", "").strip().lower(), 0),
        ),
    )


def _ranges(cell: str) -> Iterator[str]:
    """Names in a cell of NVTX ranges, the outermost first.

    Up to 2024 a line a range, `ID:DOMAIN:NAME:…`; since 2025 one line for all, `THREAD  "DOMAIN:NAME:…"  "DOMAIN:…"`.
    """
    thread, quote, quoted = cell.strip().partition('"')
    if quote and thread.strip().isdecimal():
        entries = [part.partition(":")[2] for part in re.split(r'"\s+"', quoted.strip().removesuffix('"'))]
    else:
        entries = [line.strip().strip('"').partition(":")[2].partition(":")[2] for line in cell.splitlines()]
    yield from filter(None, map(_range_name, entries))


def _range_name(entry: str) -> str:
    """The NAME of `NAME:…`: six fields follow, of which the last is the name again or one word; both hold colons."""
    parts = entry.split(":")
    for length in range(1, len(parts) - _NVTX_FIELDS + 1):
        if parts[:length] == parts[length + _NVTX_FIELDS - 1 :]:
            return ":".join(parts[:length])
    return ":".join(parts[:-_NVTX_FIELDS])
