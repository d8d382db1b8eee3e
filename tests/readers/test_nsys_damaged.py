"""Damaged and hostile exports of Nsight Systems: a table of what is left, or a sentence; never anything else."""

from __future__ import annotations

import random
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from perfkit.analysis.report.analyse import analyse_any
from perfkit.errors import InputError, PerfkitError
from perfkit.readers import read, tables_of
from perfkit.readers.nsys.database import LONGEST_TEXT
from perfkit.render import output, terminal
from perfkit.table import KernelTable
from tests.support.readers.nsys_exports import (
    CALL,
    COPY,
    KERNEL,
    RANGE,
    Strings,
    Tables,
    call,
    kernel,
    nvtx,
    two_steps,
    without,
    write,
)  # fmt: skip

STRANGE: tuple[Any, ...] = (
    None, "", "text", "12", b"\xff\xfe\x00", -1, 0, 2**31, 2**62, 2**63 - 1, -(2**63), 1.5, 1e308, float("inf"),
)  # fmt: skip


def outcome(path: Path, reported: bool = True) -> str:
    """Read the file as a person would: "table" (after a whole report where wanted), else the sentence of the error."""
    before = path.read_bytes()
    said, table = "table", None
    try:
        table = read(path)
    except PerfkitError as error:
        said = error.message
        assert_sentence(said)
    if table is not None:
        assert isinstance(table.check(), KernelTable)
        assert not reported or "nan" not in terminal.render(analyse_any(table, path)).lower().split()
    assert path.read_bytes() == before
    return said


def assert_no_silent_loss(path: Path) -> None:
    table = read(path)
    assert isinstance(table, KernelTable)
    assert len(table) == 6 or any("may be missing" in w or "left out" in w for w in table.warnings)


def assert_sentence(text: str) -> None:
    assert text.endswith(".") and "\n" not in text


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    return write(tmp_path / "whole", two_steps()).read_bytes()


def test_every_truncation_gets_a_sentence(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "cut"
    for length in [*range(16, 200, 7), *range(200, len(whole), 997), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"cut off|damaged"):
            read(path)


@pytest.mark.parametrize("mutations", [40, pytest.param(180, marks=pytest.mark.full)])
def test_bytes_changed_at_random(tmp_path: Path, whole: bytes, mutations: int) -> None:
    chance = random.Random(3)
    path = tmp_path / "mutated"
    seen = set()
    for number in range(mutations):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 4, 64))):
            at = chance.randrange(16, len(data) if chance.random() < 0.5 else 2000)
            data[at] = chance.choice((0, 255, chance.randrange(256), data[at] ^ 1 << chance.randrange(8)))
        if chance.random() < 0.2:
            at = chance.randrange(100, len(data))
            data[at : at + 512] = bytes(min(512, len(data) - at))
        path.write_bytes(data)
        readable = outcome(path, number % 20 == 0) == "table"
        seen.add(readable)
        if readable:
            assert_no_silent_loss(path)
    assert seen == {True, False}


@pytest.mark.parametrize("mutations", [40, pytest.param(120, marks=pytest.mark.full)])
def test_values_of_another_type_or_size(tmp_path: Path, mutations: int) -> None:
    chance = random.Random(4)
    path = tmp_path / "mutated"
    for number in range(mutations):
        tables = {name: [dict(row) for row in rows] for name, rows in two_steps().items()}
        for _ in range(chance.choice((1, 3, 20))):
            row = chance.choice(tables[chance.choice(list(tables))])
            row[chance.choice(list(row))] = chance.choice(STRANGE)
        path.unlink(missing_ok=True)
        said = outcome(write(path, tables), number % 20 == 0)
        assert said == "table" or "no GPU activity" in said


def test_each_column_and_each_table_missing(tmp_path: Path) -> None:
    path = tmp_path / "mutated"
    whole = two_steps()
    for table, rows in whole.items():
        for changed in [
            {**whole, table: []},
            *(without(whole, table, column) for column in rows[0] if len(rows[0]) > 1),
        ]:
            path.unlink(missing_ok=True)
            said = outcome(write(path, changed), reported=False)
            assert said == "table" or "has no start and end times" in said


def test_a_table_with_no_rows_or_of_another_shape(tmp_path: Path) -> None:
    path = write(tmp_path / "profile", {name: rows for name, rows in two_steps().items() if name != RANGE})
    with sqlite3.connect(path) as connection:
        connection.execute(f'CREATE TABLE {RANGE} (start BLOB, "end" TEXT, "we""ird" INTEGER)')
        connection.execute('CREATE TABLE "a ""quoted"" name" (x)')
    connection.close()
    assert outcome(path) == "table"


def hostile(text: str) -> Tables:
    s = Strings()
    return {
        KERNEL: [kernel(s, text, 10, 20, 1), kernel(s, f"{text}<{text}>({text})", 30, 45, 2)],
        CALL: [call(s, text, 1, 2, 1), call(s, "cudaLaunchKernel", 3, 4, 2)],
        RANGE: [nvtx(text, 0, 50), nvtx(f"perfkit:pass:{text}", 0, 50), nvtx(f"perfkit:module:{text}", 0, 50)],
        "TARGET_INFO_GPU": [{"id": 0, "name": text}],
        "DIAGNOSTIC_EVENT": [{"severity": 3, "text": f"CUDA {text}"}],
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": text}],
        "StringIds": s.rows(),
    }


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "\x1b[31mred\x1b]0;title\x07",
        "n" * 10_000,
        "a\nb\r\tc\x00d",
        "[bold]|`*",
        "\u202eabc",
    ],
    ids=["html", "ansi", "long", "control", "markup", "bidirectional"],
)
def test_names_are_harmless_in_every_output(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "profile", hostile(text))
    table = read(path)
    result = analyse_any(table, path)
    out = tmp_path / "out"
    out.mkdir()
    for file in output.of_report(result, lambda: tables_of(table)).write(out, output.chosen("html,md,txt,csv")):
        written = file.read_text(encoding="utf-8")
        if file.suffix == ".html":
            assert "<script>alert(1)" not in written
        if file.suffix in (".txt", ".md"):
            assert "\x1b" not in written and "\u202e" not in written
            assert max(map(len, written.splitlines())) < 2000
        if file.suffix == ".md":  # names are in code spans
            assert "<script" not in re.sub(r"(`+).*?\1", "", written)


def test_a_text_longer_than_any_name_is_cut(tmp_path: Path) -> None:
    table = read(write(tmp_path / "profile", hostile("x" * 50_000)))
    assert isinstance(table, KernelTable)
    assert table.frame["name"].str.len().max() == LONGEST_TEXT
    assert table.frame["range"].str.len().max() <= 200
    assert max(len(entry["name"]) for entry in [*table.facts["ranges"], *table.facts["api"]]) <= 200


def test_text_that_is_no_unicode(tmp_path: Path) -> None:
    tables = two_steps()
    tables["StringIds"] = [{**row, "value": b"k\xff\xfe"} for row in tables["StringIds"]]
    table = read(write(tmp_path / "profile", tables))
    assert isinstance(table, KernelTable) and table.frame["name"].iloc[0] == "k��"


def test_a_schema_that_is_none_is_quoted_harmlessly(tmp_path: Path) -> None:
    path = write(tmp_path / "profile", two_steps())
    data = path.read_bytes().replace(b"table" + CALL.encode(), b"table\x1b[31m" + CALL[5:].encode())
    path.write_bytes(data.replace(b'CREATE TABLE "CUPTI_ACTIVITY_KIND_R', b'CREATE TABLE x"UPTI_ACTIVITY_KIND_R'))
    with pytest.raises(InputError, match=r"damaged: .*\\x1b\[31m") as error:
        read(path)
    assert "\x1b" not in str(error.value)


def test_rows_that_a_damaged_page_hides_are_missed(tmp_path: Path) -> None:
    """One cell fewer in the header of a table's page: sqlite reads on as if there were nothing wrong."""
    path = write(tmp_path / "profile", two_steps())
    data = bytearray(path.read_bytes())
    at = page_of(path, KERNEL)
    assert data[at + 4] == 5
    data[at + 4] = 4
    path.write_bytes(data)
    table = read(path)
    assert isinstance(table, KernelTable) and len(table) == 5
    assert table.warnings[0].startswith("the file is damaged (") and "rows may be missing" in table.warnings[0]


def page_of(path: Path, table: str) -> int:
    """Return the offset of the table's page."""
    with sqlite3.connect(path) as connection:
        ((page, size),) = connection.execute(
            "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size WHERE name = ?", (table,)
        )
    connection.close()
    return (page - 1) * size


def test_damage_in_the_copies_is_not_passed_over(tmp_path: Path) -> None:
    """A page of zeros where a table begins: what it held is lost, and the capture is not shown as whole."""
    path = write(tmp_path / "profile", two_steps())
    data = bytearray(path.read_bytes())
    at = page_of(path, COPY)
    data[at : at + 4096] = bytes(4096)
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged"):
        read(path)
