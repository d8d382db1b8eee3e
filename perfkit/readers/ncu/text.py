"""The details page that `ncu` prints as text, as the rows of the same page in CSV.

[1433] app@127.0.0.1
  void add<float>(float *) (64, 1, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 9.0
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    Duration                         us         1.89
    ----------------------- ----------- ------------

    OPT   Est. Speedup: 23.81%
          The grid for this launch is configured to execute only 64 blocks, …
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Row = dict[str, str]
ROUNDED = "ncu prints two decimals of each value as text: the CSV of its raw page holds more, and the counters of bytes"

_SIZE = r"\((?:[\d,.]+, ?){2}[\d,.]+\)"
_KERNEL = re.compile(
    rf"^\s*(?P<name>\S.*?)(?: (?P<grid>{_SIZE})x(?P<block>{_SIZE}))?(?:, \d{{4}}-\w{{3}}-\d\d [\d:]+)?"
    r", Context \d+, Stream (?P<stream>\d+)(?:, Device (?P<device>\d+))?(?:, CC (?P<cc>\d+\.\d+))?\s*$"
)
_PROCESS = re.compile(r"^\s*\[(\d+)\] \S.*@\S+\s*$")
_SECTION = re.compile(r"^\s*Section: (\S.*?)\s*$")
_HEADER = re.compile(r"^\s*Metric Name +Metric Unit +Metric Value\s*$")
_RULE = re.compile(r"^(\s*)(INF|OPT|WRN|ERR)   (.*)$")
_SPEEDUP = re.compile(r"^Est\. (Local )?Speedup: ([\d.,]+)%\s*(.*)$")
_DASHES = re.compile(r"-{3,}")
_LONGEST = 10_000  # characters of a line that is looked at


def is_page(text: str) -> bool:
    """Return whether `text` begins with such a page, perhaps after lines of the program."""
    return "Section: " in text and ", Context " in text and next(rows_of(text), None) is not None


def rows_of(text: str) -> Iterator[Row]:
    """Yield a row a metric or rule, as a details page in CSV has them."""
    lines = [line for line in text.splitlines() if len(line) <= _LONGEST]
    process, kernel, section, number, at = "", Row(), "", -1, 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if found := _PROCESS.match(line):
            process = found[1]
        elif found := _KERNEL.match(line):
            number += 1
            kernel, section = _kernel(found, process, number), ""
        elif kernel and (found := _SECTION.match(line)):
            section = found[1]
            if at < len(lines) and _DASHES.match(lines[at].lstrip()):
                for metric in _metrics(lines, at):
                    yield {**kernel, "Section Name": section, **metric}
        elif kernel and section and (found := _RULE.match(line)):
            yield {**kernel, "Section Name": section, **_rule(found, lines, at)}


def _kernel(found: re.Match[str], process: str, number: int) -> Row:
    return {"ID": str(number), "Process ID": process, "Kernel Name": found["name"], "Grid Size": found["grid"] or "",
            "Block Size": found["block"] or "", "Stream": found["stream"], "Device": found["device"] or "",
            "CC": found["cc"] or ""}  # fmt: skip


def _metrics(lines: list[str], at: int) -> Iterator[Row]:
    """The table of a section, whose first line of dashes is `at` and shows its columns."""
    columns = [found.span() for found in _DASHES.finditer(lines[at])]
    if len(columns) != 3 or at + 2 >= len(lines) or not _HEADER.match(lines[at + 1]):
        return
    (_, first), (second, third), _ = columns
    for line in lines[at + 3 :]:
        if not line.strip() or _DASHES.match(line.lstrip()):
            return
        name, unit, value = line[:first], line[first:third], line[third:]
        if third <= second or not value.strip():
            return  # cut off within the line
        yield {"Metric Name": name.strip(), "Metric Unit": unit.strip(), "Metric Value": value.strip()}


def _rule(found: re.Match[str], lines: list[str], at: int) -> Row:
    """A rule and the lines of its text, which stand below its first word."""
    indent = len(found[1]) + 6
    said = [found[3].strip()]
    while at < len(lines) and lines[at].startswith(" " * indent) and lines[at].strip():
        said.append(lines[at].strip())
        at += 1
    text = " ".join(filter(None, said))
    estimate = _SPEEDUP.match(text)
    row = {"Rule Type": found[2], "Rule Description": estimate[3] if estimate else text}
    if estimate:
        row |= {"Estimated Speedup": estimate[2], "Estimated Speedup Type": "local" if estimate[1] else "global"}
    return row
