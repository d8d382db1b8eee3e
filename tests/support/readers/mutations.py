"""Damaged profiles made from good ones, the same for the same seed: bytes, reports, pages of CSV, databases."""

from __future__ import annotations

import csv
import io
import random
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfkit.errors import InputError
from perfkit.readers import read
from tests.support.readers.ncu_reports import varint

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J",
    "k" * 10_000,
    "<b>" * 3000 + "\x1b[1m" * 200,
    "",
    "ker\u202enel\x00\x07\n\r",
)
STRANGE = (
    "", "nan", "inf", "-inf", "-1", "0", "1e308", "-1e308", "9" * 400, "1e-320", "NULL", "0x10", "1,2,3,4.5.6",
    "\x1b[31m", "None", "٣", "--", "%", "1_000", "=1+1", "'; DROP TABLE x; --", "<b>1</b>",
)  # fmt: skip


# --- bytes
def _flip(data: bytearray, r: random.Random) -> None:
    data[r.randrange(len(data))] ^= 1 << r.randrange(8)


def _flips(data: bytearray, r: random.Random) -> None:
    for _ in range(r.randint(2, 16)):
        _flip(data, r)


def _overwrite(data: bytearray, r: random.Random) -> None:
    start, length = r.randrange(len(data)), r.randint(1, 64)
    data[start : start + length] = r.randbytes(len(data[start : start + length]))


def _zero(data: bytearray, r: random.Random) -> None:
    start, length = r.randrange(len(data)), r.randint(1, 4096)
    data[start : start + length] = bytes(len(data[start : start + length]))


def _truncate(data: bytearray, r: random.Random) -> None:
    del data[r.randrange(len(data)) :]


def _delete(data: bytearray, r: random.Random) -> None:
    start = r.randrange(len(data))
    del data[start : start + r.randint(1, 2000)]


def _duplicate(data: bytearray, r: random.Random) -> None:
    start = r.randrange(len(data))
    data[start:start] = data[start : start + r.randint(1, 2000)]


def _insert(data: bytearray, r: random.Random) -> None:
    start = r.randrange(len(data))
    data[start:start] = r.randbytes(r.randint(1, 200))


def _swap(data: bytearray, r: random.Random) -> None:
    size = min(4096, len(data) // 3)
    a, b = r.randrange(len(data) - size), r.randrange(len(data) - size)
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]


BYTES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip, _flips, _overwrite, _zero, _truncate, _delete, _duplicate, _insert, _swap,
)  # fmt: skip


def of_bytes(data: bytes, r: random.Random) -> tuple[str, bytes]:
    """A kind of damage and the damaged copy."""
    change = r.choice(BYTES)
    damaged = bytearray(data)
    change(damaged, r)
    return change.__name__.strip("_"), bytes(damaged)


def sentences(path: Path, whole: bytes, count: int, seed: int, read: Callable[[Path], Any] = read) -> list[str]:
    """The errors, one line each, by which `read` refuses damaged copies of `whole` at `path`; it may fail in no other
    way."""
    chance, said = random.Random(seed), list[str]()
    for _ in range(count):
        path.write_bytes(of_bytes(whole, chance)[1])
        try:
            read(path)
        except InputError as error:
            said.append(str(error))
    assert all(text and "\n" not in text for text in said)
    return said


# --- reports of Nsight Compute
def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


Field = tuple[int, int, bytes]  # number, wire type, content (without the length)


def parse(message: bytes) -> list[Field]:
    """The fields of a protocol buffer."""
    found, at = [], 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        start = at
        if tag & 7 == 0:
            _, at = _read_varint(message, at)
        elif tag & 7 == 2:
            length, start = _read_varint(message, at)
            at = start + length
        else:
            at += 8 if tag & 7 == 1 else 4
        found.append((tag >> 3, tag & 7, message[start:at]))
    return found


def build(fields: list[Field]) -> bytes:
    return b"".join(
        varint(n << 3 | w) + (varint(len(content)) if w == 2 else b"") + content for n, w, content in fields
    )


def blocks(data: bytes) -> tuple[bytes, list[tuple[list[Field], list[bytes]]]]:
    """The beginning of a report, and its blocks: the fields of the header, and the messages of the payload."""
    at = 8 + int.from_bytes(data[4:8], "little")
    head, found = data[:at], []
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        header = parse(data[at + 4 : at + 4 + length])
        at += 4 + length
        end = at + next((_read_varint(c, 0)[0] for n, _, c in header if n == 5), 0)
        messages = []
        while at < end:
            size = int.from_bytes(data[at : at + 4], "little")
            messages.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        found.append((header, messages))
    return head, found


def report(head: bytes, found: list[tuple[list[Field], list[bytes]]]) -> bytes:
    """The bytes of a report, with all lengths as they must be."""
    out = [head]
    for header, messages in found:
        payload = b"".join(len(m).to_bytes(4, "little") + m for m in messages)
        raw = build([(n, w, varint(len(payload)) if n == 5 else c) for n, w, c in header])
        out += [len(raw).to_bytes(4, "little"), raw, payload]
    return b"".join(out)


def of_report(data: bytes, r: random.Random) -> tuple[str, bytes]:
    """Damage that keeps the container whole, half of the time; of bytes, the other half."""
    if r.random() < 0.5:
        return of_bytes(data, r)
    head, found = blocks(data)
    results = [i for i, (header, _) in enumerate(found) if any(n == 2 and c != b"\0" for n, _, c in header)]
    chosen = r.choice(results)
    header, messages = found[chosen]
    kind = r.choice(("value bits", "value", "value", "drop metric", "drop result", "repeat result", "name", "text"))
    if kind == "drop result":
        del found[r.choice(results)]
    elif kind == "repeat result":
        found.insert(chosen, ([(n, w, c) for n, w, c in header if n != 4], messages))
    elif kind == "text":
        position = next(i for i, (n, _, c) in enumerate(found[results[0]][0]) if n == 4 and c)
        names = parse(found[results[0]][0][position][2])
        names[r.randrange(len(names))] = (1, 2, r.choice(HOSTILE).encode())
        found[results[0]][0][position] = (4, 2, build(names))
    else:
        found[chosen] = (header, [_changed_result(messages[0], kind, r), *messages[1:]])
    return kind, report(head, found)


def _changed_result(message: bytes, kind: str, r: random.Random) -> bytes:
    fields = parse(message)
    if kind == "name":
        return build([(n, w, r.choice(HOSTILE).encode() if n in (5, 6, 7) else c) for n, w, c in fields])
    metrics = [i for i, (n, _, _) in enumerate(fields) if n == 13]
    index = r.choice(metrics)
    if kind == "drop metric":
        del fields[index]
        return build(fields)
    inner = parse(fields[index][2])
    for i, (number, _, content) in enumerate(inner):
        if number == 2:
            inner[i] = (2, 2, _changed_value(content, kind, r))
    fields[index] = (13, 2, build(inner))
    return build(fields)


def _changed_value(content: bytes, kind: str, r: random.Random) -> bytes:
    if kind == "value bits":
        damaged = bytearray(content)
        damaged[r.randrange(1, len(damaged)) if len(damaged) > 1 else 0] ^= 1 << r.randrange(8)
        return bytes(damaged)
    if content[:1] == b"\x19":
        old = struct.unpack("<d", content[1:9])[0]
        new = r.choice((float("nan"), float("inf"), -1.0, 0.0, 1e300, 5e-324, old * 1.5, old * 10, old + 1, -old))
        return b"\x19" + struct.pack("<d", new)
    return b"\x28" + varint(r.choice((0, 1, 7, 2**31, 2**63, 2**64 - 1)))


# --- pages of `ncu --csv`
def of_page(data: bytes, r: random.Random) -> tuple[str, bytes]:
    """Damage of bytes, or of cells, columns and rows."""
    if r.random() < 0.4:
        return of_bytes(data, r)
    rows = list(csv.reader(io.StringIO(data.decode())))
    kind = r.choice(("cell", "cells", "drop column", "drop row", "repeat row", "swap titles", "name", "short row"))
    row = r.randrange(1, len(rows))
    if kind in ("cell", "cells"):
        for _ in range(1 if kind == "cell" else 200):
            chosen = rows[r.randrange(len(rows))]
            chosen[r.randrange(len(chosen))] = r.choice((*STRANGE, *HOSTILE))
    elif kind == "drop column":
        column = r.randrange(len(rows[0]))
        rows = [[c for i, c in enumerate(line) if i != column] for line in rows]
    elif kind == "drop row":
        del rows[row]
    elif kind == "repeat row":
        rows.insert(row, rows[row])
    elif kind == "swap titles":
        a, b = r.randrange(len(rows[0])), r.randrange(len(rows[0]))
        rows[0][a], rows[0][b] = rows[0][b], rows[0][a]
    elif kind == "name":
        rows[row][rows[0].index("Kernel Name")] = r.choice(HOSTILE)
    else:
        rows[row] = rows[row][: r.randrange(len(rows[row]))]
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
    return kind, out.getvalue().encode()


# --- databases of Nsight Systems
VALUES = (None, "", "text", "12", b"\xff\xfe\x00", -1, 0, 2**31, 2**62, 2**63 - 1, -(2**63), 1.5, 1e308, float("inf"))


def of_database(data: bytes, r: random.Random, folder: Path) -> tuple[str, bytes]:
    """Damage of bytes, or of tables, columns and values."""
    if r.random() < 0.4:
        return of_bytes(data, r)
    path = folder / "mutated.sqlite"
    path.write_bytes(data)
    kind = r.choice(("drop table", "drop column", "values", "column of values", "rows", "texts", "rename", "nested"))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = r.choice(tables)
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        column = r.choice(columns)
        if kind == "drop table":
            connection.execute(f'DROP TABLE "{table}"')
        elif kind == "drop column" and len(columns) > 1:
            connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
        elif kind == "rename":
            connection.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{r.choice(("x", "begin", "a b"))}"')
        elif kind == "rows":
            connection.execute(f'DELETE FROM "{table}" WHERE rowid % ? = 0', (r.randint(1, 5),))
        elif kind == "texts" and "StringIds" in tables:
            connection.execute("UPDATE StringIds SET value = ? WHERE id % ? = 0", (r.choice(HOSTILE), r.randint(1, 4)))
        elif kind == "nested":
            connection.execute(f'ALTER TABLE "{table}" RENAME TO "{table}_"')
            connection.execute(f'CREATE VIEW "{table}" AS SELECT * FROM "{table}_"')
        else:
            every = 1 if kind == "column of values" else r.randint(2, 9)
            connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % ? = 0', (r.choice(VALUES), every))
    connection.close()
    return kind, path.read_bytes()
