"""Pages that `ncu` prints as text: the same table as their CSV, and any damage is a sentence."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import random
import textwrap
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from perfkit.errors import PerfkitError
from perfkit.readers import read
from perfkit.table import KernelTable

FIXTURES = Path(__file__).parents[1] / "fixtures" / "ncu"


def printed(content: str) -> str:
    """The text of a details page as ncu prints it, made of its CSV."""
    rows = list(csv.DictReader(io.StringIO(content)))
    lines = [
        "==PROF== Connected to process 2338 (/usr/bin/python3.12)",
        "step 1, loss 3.4",
        "[2338] python3.12@127.0.0.1",
    ]
    for _, kernel in itertools.groupby(rows, lambda row: row["ID"]):
        own = list(kernel)
        one = own[0]
        lines.append(
            f"  {one['Kernel Name']} {one['Grid Size']}x{one['Block Size']}, Context {one['Context']}, "
            f"Stream {one['Stream']}, Device {one['Device']}, CC {one['CC']}"
        )
        for section, found in itertools.groupby(own, lambda row: row["Section Name"]):
            lines += _section(section, list(found))
    return "\n".join(lines) + "\n"


def _section(section: str, rows: list[dict[str, str]]) -> list[str]:
    metrics = [("Metric Name", "Metric Unit", "Metric Value")] + [
        (row["Metric Name"], row["Metric Unit"], row["Metric Value"]) for row in rows if row["Metric Name"]
    ]
    lines = [f"    Section: {section}"]
    if len(metrics) > 1:
        widths = [max(len(metric[i]) for metric in metrics) for i in range(3)]
        dashes = "    " + " ".join("-" * width for width in widths)
        table = [f"    {n:<{widths[0]}} {u:>{widths[1]}} {v:>{widths[2]}}" for n, u, v in metrics]
        lines += [dashes, table[0], dashes, *table[1:], dashes, ""]
    for row in rows:
        if row["Rule Description"]:
            scope = {"local": "Est. Local Speedup", "global": "Est. Speedup"}.get(row["Estimated Speedup Type"] or "")
            said = [f"{scope}: {row['Estimated Speedup']}%"] if scope else []
            said += textwrap.wrap(row["Rule Description"], 110)
            lines += [f"    {row['Rule Type']:<3}   {said[0]}", *(f"          {more}" for more in said[1:]), ""]
    return lines


def table(path: Path, content: str) -> KernelTable:
    path.write_text(content)
    found = read(path)
    assert isinstance(found, KernelTable)
    return found


@pytest.mark.parametrize("name", ["kernels-basic", "kernels-full"])
def test_text_gives_the_table_of_the_csv(tmp_path: Path, name: str) -> None:
    content = gzip.decompress((FIXTURES / f"{name}.details.csv.gz").read_bytes()).decode()
    plain, text = table(tmp_path / "page.csv", content), table(tmp_path / "page.txt", printed(content))
    ranges = ["range", "step", "pass", "layer", "module", "operator", "placed_by"]  # which text does not hold
    assert len(text) > 1
    assert_frame_equal(text.frame.drop(columns=ranges), plain.frame.drop(columns=ranges), check_dtype=False)
    assert any("two decimals" in said for said in text.warnings)
    speedups = [
        [rule["speedup"] for one in source.facts["kernels"] for rule in one["rules"] if rule["speedup"]]
        for source in (text, plain)
    ]
    assert speedups[0] == speedups[1] and any(speedups[0])


def test_a_page_of_an_older_ncu(tmp_path: Path) -> None:
    """It had a date in the place of the sizes, and other words for units."""
    content = (
        "==PROF== Disconnected from process 828\n[828] app@127.0.0.1\n"
        "  sgemm(int, int, float), 2022-Mar-04 10:11:12, Context 1, Stream 7\n"
        "    Section: GPU Speed Of Light Throughput\n"
        "    ----------- --------------- ------------\n"
        "    Metric Name     Metric Unit Metric Value\n"
        "    ----------- --------------- ------------\n"
        "    Duration            msecond        96.32\n"
        "    ----------- --------------- ------------\n"
    )
    found = table(tmp_path / "page", content)
    assert found.frame["short_name"].tolist() == ["sgemm"] and found.frame["duration_ns"].tolist() == [96.32e6]
    assert found.frame["stream"].tolist() == [7] and found.frame["grid_x"].isna().all()


def test_damaged_pages(tmp_path: Path) -> None:
    """A hundred mutations give a table, or a sentence."""
    made, path = random.Random(3), tmp_path / "page.txt"
    sound = printed(gzip.decompress((FIXTURES / "kernels-basic.details.csv.gz").read_bytes()).decode())
    for _ in range(100):
        lines = sound.splitlines(keepends=True)
        for _ in range(made.randint(1, 4)):
            at = made.randrange(len(lines))
            change = made.randrange(4)
            lines[at : at + 1] = (
                [] if change == 0 else [lines[at]] * 2 if change == 1 else [lines[at][: made.randrange(90)]]
                if change == 2 else ["".join(made.sample(lines[at], len(lines[at])))]
            )  # fmt: skip
        path.write_text("".join(lines)[: made.choice([None, made.randrange(len(sound))])])
        with contextlib.suppress(PerfkitError):
            read(path)
