"""An sqlite export of Nsight Systems, opened so that nothing in it can do harm.

The file is opened read-only and immutable. A table appears in an export only when it has rows, and its columns differ
with the schema's version: what is there is looked up first. sqlite stores any type in any column, so that a number is
taken only where the value is one. Views and virtual tables, which could run code, are not tables here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from perfkit.errors import InputError

AGAIN = "Export it again: `nsys export --type sqlite REPORT.nsys-rep`."
ABSENT = -(2**63)  # "no number here" in integer columns
LONGEST_TEXT = 20_000  # characters read of a name

_LEAST_ROW_BYTES = 4  # a row of a table cannot be smaller: bounds what a damaged file can claim to hold
_CHUNK = 8192  # rows as Python objects at a time

Integers = npt.NDArray[np.int64]


class Database:
    """The tables of an export: `tables` maps a name to its columns, in the order of the file."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        self._most_rows = path.stat().st_size // _LEAST_ROW_BYTES
        entries = [(str(n), str(s)) for n, s in self._rows("SELECT name, sql FROM sqlite_master WHERE type <> 'index'")]
        plain = [name for name, sql in entries if _is_plain(name, sql)]
        self.refused = sorted({name for name, _ in entries} - set(plain))
        self.tables: dict[str, tuple[str, ...]] = {name: self._columns(name) for name in plain}

    def has(self, table: str, *columns: str) -> bool:
        """Return whether the table is there with all these columns."""
        return set(columns) <= set(self.tables.get(table, ())) if table in self.tables else False

    def integers(self, table: str, columns: Iterable[str]) -> dict[str, Integers]:
        """Return those of `columns` as arrays, one value a row, `ABSENT` where it is missing or not an integer.

        A column that the table lacks is `ABSENT` in every row; a table that the export lacks has no rows.
        """
        wanted = list(columns)
        present = [c for c in wanted if c in self.tables.get(table, ())]
        if not present:
            return {c: np.empty(0, np.int64) for c in wanted}
        picked = ", ".join(f'CASE typeof("{c}") WHEN \'integer\' THEN "{c}" ELSE {_SQL_ABSENT} END' for c in present)
        chunks = [np.array(rows, np.int64) for rows in self._chunks(f'SELECT {picked} FROM "{table}"')]
        found = np.concatenate(chunks) if chunks else np.empty((0, len(present)), np.int64)
        values = {c: np.ascontiguousarray(found[:, i]) for i, c in enumerate(present)}
        return {c: values.get(c, np.full(len(found), ABSENT)) for c in wanted}

    def texts(self, table: str, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Rows of the table as text, "" for what is not there; nothing when a column or the table is missing."""
        if not self.has(table, *columns):
            return
        picked = ", ".join(f'substr(CAST("{c}" AS TEXT), 1, {LONGEST_TEXT})' for c in columns)
        for rows in self._chunks(f'SELECT {picked} FROM "{table}"'):
            yield from (tuple("" if v is None else str(v) for v in row) for row in rows)

    def strings(self, *wanted: Integers) -> dict[int, str]:
        """The texts of `StringIds` for those ids that occur in `wanted`."""
        ids = {str(i) for i in np.unique(np.concatenate([np.empty(0, np.int64), *wanted])).tolist() if i != ABSENT}
        return {int(i): text for i, text in self.texts("StringIds", ("id", "value")) if i in ids}

    def settings(self, table: str) -> dict[str, str]:
        """A table of names and values, such as META_DATA_EXPORT."""
        return dict(self.texts(table, ("name", "value")))  # type: ignore[arg-type]

    def damage(self) -> str:
        """Return what is wrong with the structure of the file, which may hide rows silently; "" if nothing is."""
        if self.refused:
            return f"{self.refused[0][:100]} is not a table"
        try:
            found = " ".join(str(row[0]) for row in self._rows("PRAGMA quick_check(1)"))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            return str(error)
        return "" if found == "ok" else " ".join(found.replace("*** in database main ***", "").split())[:200]

    def _columns(self, table: str) -> tuple[str, ...]:
        return tuple(str(row[1]) for row in self._rows(f'PRAGMA table_info("{table}")'))

    def _rows(self, query: str) -> list[tuple]:
        return [row for rows in self._chunks(query) for row in rows]

    def _chunks(self, query: str) -> Iterator[list[tuple]]:
        cursor = self._connection.execute(query)
        read = 0
        while rows := cursor.fetchmany(_CHUNK):
            read += len(rows)
            if read > self._most_rows:
                raise sqlite3.DatabaseError("it claims more rows than fit in it")
            yield rows


def _is_plain(name: str, sql: str) -> bool:
    """Return whether an entry of the schema is a table of stored rows, by its own definition."""
    return sql.upper().startswith("CREATE TABLE") and name in sql and '"' not in name


_SQL_ABSENT = "(-9223372036854775807 - 1)"  # ABSENT; sqlite reads -9223372036854775808 as a real number


@contextmanager
def opened(path: Path, again: str = AGAIN) -> Iterator[Database]:
    """Open the database at `path`. Raises `InputError` for a file that is cut off, damaged or not a database; `again`
    says how to make it again."""
    _check_size(path, again)
    connection = None
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        yield Database(connection, path)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is damaged: {_printable(str(error))}.", again) from error
    finally:
        if connection is not None:
            connection.close()


def _printable(text: str) -> str:
    """sqlite's messages quote names from the file: no control character of theirs reaches a terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[:200])


def _check_size(path: Path, again: str) -> None:
    """The header states the file's size: sqlite itself would read what is left of a file cut off in its free pages."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    page = int.from_bytes(header[16:18], "big")
    stated = (65_536 if page == 1 else page) * int.from_bytes(header[28:32], "big")
    if len(header) < 100 or path.stat().st_size < stated:
        raise InputError(f"{path} is cut off: its database should be longer than it is.", again)


def first_present(*columns: Integers) -> Integers:
    """Row by row the first value that is present."""
    result = columns[0]
    for other in columns[1:]:
        result = np.where(result == ABSENT, other, result)
    return result


def spoken(values: Integers, texts: Mapping[int, str], otherwise: str = "") -> list[str]:
    """The text of each id; `otherwise` without one."""
    return [texts.get(v) or otherwise for v in values.tolist()]
