"""Columns of a kernel table as readers make them and as analyses read them: without pandas, whose import alone takes
longer than reading a small trace.

A `Frame` answers the part of a data frame's questions that the report asks, in the same words, so that a function takes
either. Values that are absent are NaN, None in a list, and −1 as a code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfkit.numbers import first_rows, numbered

if TYPE_CHECKING:
    import pandas as pd

Integers = npt.NDArray[Any]
Reals = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


class Real(np.ndarray[Any, Any]):
    """Real numbers, NaN where absent; also the truth of a question for each row."""

    def to_numpy(self, dtype: Any = None, copy: bool = False, na_value: Any = None) -> Any:
        """Return the values as a plain array."""
        return np.array(self, dtype) if copy else np.asarray(self, dtype)

    def isna(self) -> Real:
        """Return which rows have no value."""
        return np.isnan(self).view(Real)

    def notna(self) -> Real:
        """Return which rows have a value."""
        return (~np.isnan(self)).view(Real)

    @property
    def iloc(self) -> Real:
        """The rows by position."""
        return self


class Column:
    """Values that may be absent, by `known`."""

    known: Any  # which rows have a value

    def isna(self) -> Real:
        """Return which rows have no value."""
        return (~self.known).view(Real)

    def notna(self) -> Real:
        """Return which rows have a value."""
        return self.known.view(Real)

    @property
    def iloc(self) -> Any:
        """The rows by position."""
        return self

    def astype(self, dtype: Any) -> Any:
        """Return the same column: its values are what they are."""
        return self

    def factorize(self) -> tuple[Integers, Sequence[Any]]:
        """Return for each row the place of its value among the distinct ones, which come in the order of their first
        row; −1 for absent."""
        raise NotImplementedError

    def unique(self) -> Sequence[Any]:
        """Return the distinct values that are known, in the order of their first row."""
        return self.factorize()[1]

    def nunique(self) -> int:
        """Return the number of distinct values."""
        return len(self.factorize()[1])

    def tolist(self) -> list[Any]:
        """Return the values, None where absent."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())


@dataclass(frozen=True, eq=False)
class Coded(Column):
    """A column of words: the distinct `words`, and for each row the place of its word in them, −1 for none."""

    words: list[str]
    code: Integers

    @classmethod
    def of(cls, values: Coded | Sequence[str | None]) -> Coded:
        """Return `values` as such a column, also of a plain list."""
        if isinstance(values, Coded):
            return values
        places: dict[str, int] = {}
        code = [-1 if v is None else places.setdefault(v, len(places)) for v in values]
        return cls(list(places), np.array(code, dtype=np.int32))

    @property
    def known(self) -> Booleans:
        """Return which rows have a word."""
        return self.code >= 0

    def mapped(self, function: Callable[[str], str | None]) -> Coded:
        """Replace each word by what `function` gives for it; None gives none."""
        new = Coded.of([function(word) for word in self.words])
        return Coded(new.words, np.append(new.code, np.int32(-1))[self.code])

    def distinct(self) -> Coded:
        """Return the column with each of its words once, as UTF-8 can hold it."""
        plain = all(map(str.isascii, self.words))
        if plain and len(set(self.words)) == len(self.words):
            return self
        return self.mapped(lambda word: word.encode(errors="replace").decode())

    def __len__(self) -> int:
        return len(self.code)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, int | np.integer):
            at = int(self.code[rows])
            return self.words[at] if at >= 0 else None
        return Coded(self.words, taken(self.code, rows))

    def __eq__(self, word: object) -> Any:
        return self.isin((word,))

    def __ne__(self, word: object) -> Any:
        return (~self.isin((word,))).view(Real)

    def isin(self, words: Collection[Any]) -> Real:
        """Return which rows have one of `words`."""
        return self.passing(lambda word: word in words)

    def passing(self, test: Callable[[str], bool]) -> Real:
        """Return which rows have a word that passes `test`, which is asked once for each word."""
        return np.array([*map(test, self.words), False], bool)[self.code].view(Real)

    def factorize(self) -> tuple[Integers, list[str]]:
        """Return for each row the place of its word among those used, in the order of their first row."""
        rows = len(self.code)
        place = np.full(len(self.words) + 1, rows, np.int64)
        place[self.code[::-1]] = np.arange(rows - 1, -1, -1)  # of several the last stays, which is the first row
        order = np.argsort(place[:-1], kind="stable")
        order = order[place[order] < rows]
        rank = np.full(len(self.words) + 1, -1, np.int64)
        rank[order] = np.arange(len(order))
        return rank[self.code], [self.words[i] for i in order.tolist()]

    def fillna(self, other: Coded | str) -> Coded:
        """The column with `other`, or its words, where this one has none."""
        if isinstance(other, str):
            return Coded([*self.words, other], np.where(self.code < 0, len(self.words), self.code)).distinct()
        both = [*self.words, *other.words]
        there = np.where(other.code < 0, -1, other.code + len(self.words))
        return Coded(both, np.where(self.code < 0, there, self.code)).distinct()

    def to_numpy(self, dtype: Any = None, copy: bool = False, na_value: Any = None) -> Any:
        """Return the words as an array of objects."""
        return np.array([*self.words, na_value], dtype=object).take(self.code, mode="wrap")

    def tolist(self) -> list[str | None]:
        """Return the words, None where absent."""
        found: list[str | None] = self.to_numpy().tolist()
        return found

    def text(self) -> list[str]:
        """Return the words, "" where absent."""
        found: list[str] = self.to_numpy(na_value="").tolist()
        return found

    def pandas(self, dtype: str) -> Any:
        """The column in pandas, as text or as categories."""
        import pandas as pd

        if dtype != "category":
            return self._text()
        used = np.flatnonzero(np.bincount(self.code[self.code >= 0], minlength=len(self.words))).tolist()
        used.sort(key=lambda i: self.words[i])
        rank = np.full(len(self.words) + 1, -1, np.int32)  # the last one is for none
        rank[used] = np.arange(len(used))
        return pd.Categorical.from_codes(rank[self.code], categories=[self.words[i] for i in used], validate=False)

    def _text(self) -> Any:
        """The column as pandas keeps text, made in one go: Arrow's own way takes several times its memory."""
        import pandas as pd
        import pyarrow as pa

        words = [*(w.encode(errors="replace") for w in self.words), b""]  # the last one is for none
        length = np.array([len(w) for w in words], dtype=np.int64)
        ends = np.zeros(len(self.code) + 1, np.int64)
        np.cumsum(length[self.code], out=ends[1:])
        text = b"".join(np.array(words, dtype=object).take(self.code))
        known = np.packbits(self.code >= 0, bitorder="little")
        buffers = [pa.py_buffer(b) for b in (known, ends, text)]
        return pd.array(
            pa.LargeStringArray.from_buffers(len(self.code), buffers[1], buffers[2], buffers[0]), dtype="string"
        )


@dataclass(frozen=True, eq=False)
class Whole(Column):
    """Whole numbers, and which of them are `known`."""

    values: Integers
    known: Booleans

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, int | np.integer):
            return int(self.values[rows]) if self.known[rows] else None
        return Whole(taken(self.values, rows), taken(self.known, rows))

    def __eq__(self, number: object) -> Any:
        return (self.known & (self.values == number)).view(Real)

    def factorize(self) -> tuple[Integers, list[int]]:
        """Return for each row the place of its number among the distinct ones, in the order of their first row."""
        used, code = numbered(self.values[self.known])
        first = first_rows(code, len(used))
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        found = np.full(len(self), -1, np.int64)
        found[self.known] = rank[code]
        return found, used[order].tolist()

    def fillna(self, number: int) -> Whole:
        """The column with `number` where it has none."""
        return Whole(np.where(self.known, self.values, number), np.ones(len(self), bool))

    def to_numpy(self, dtype: Any = None, copy: bool = False, na_value: Any = np.nan) -> Any:
        """Return the numbers as an array; `na_value` where absent."""
        if dtype is None or dtype is object:
            return np.array(self.tolist(), dtype=object)
        values = self.values.astype(dtype)
        return values if self.known.all() else np.where(self.known, values, na_value).astype(dtype)

    def tolist(self) -> list[int | None]:
        """Return the numbers, None where absent."""
        if self.known.all():
            return self.values.tolist()  # type: ignore[no-any-return]
        return [n if there else None for n, there in zip(self.values.tolist(), self.known.tolist(), strict=True)]

    def pandas(self, dtype: str) -> Any:
        """The column in pandas."""
        import pandas as pd

        return pd.arrays.IntegerArray(np.array(self.values, np.int64), ~self.known)


def taken(values: Any, rows: Any) -> Any:
    """Some rows of an array; one that repeats a single value stays that."""
    rows = rows if isinstance(rows, slice) else np.asarray(rows)
    if isinstance(rows, slice):
        return values[rows]
    if values.strides == (0,) and len(values):
        count = int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows)
        return np.broadcast_to(values[0], count).view(type(values))
    return values[rows]


class Frame:
    """Named columns of one length: `Coded`, `Whole` and `Real`. Its parts are made when they are asked for."""

    def __init__(self, columns: Mapping[str, Any], rows: int) -> None:
        self._columns, self._rows = dict(columns), rows

    @property
    def columns(self) -> list[str]:
        """The names."""
        return list(self._columns)

    @cached_property
    def index(self) -> npt.NDArray[np.int64]:
        """The positions of the rows."""
        return np.arange(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, asked: Any) -> Any:
        if isinstance(asked, str):
            return self._columns[asked]
        if isinstance(asked, np.ndarray):
            return self._taken(asked)
        return Frame({name: self._columns[name] for name in asked}, self._rows)

    @property
    def iloc(self) -> _Rows:
        """The rows by position."""
        return _Rows(self)

    def _taken(self, rows: Any) -> Frame:
        if rows.dtype == bool and rows.all():
            return self
        count = int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows)
        columns = {n: taken(c, rows) if isinstance(c, Real) else c[rows] for n, c in self._columns.items()}
        return Frame(columns, count)

    def to_numpy(self, dtype: Any = float) -> Any:
        """Return the columns next to each other in one array."""
        found = np.empty((self._rows, len(self._columns)), dtype)
        for i, column in enumerate(self._columns.values()):
            found[:, i] = column.to_numpy(dtype)
        return found

    def pandas(self, dtypes: Mapping[str, str]) -> pd.DataFrame:
        """Return the columns as a data frame; `dtypes` are by column."""
        import pandas as pd

        made = {n: np.array(c) if isinstance(c, Real) else c.pandas(dtypes[n]) for n, c in self._columns.items()}
        return pd.DataFrame(made, copy=False)


class _Rows:
    """The rows of a frame by position."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def __getitem__(self, rows: Any) -> Frame:
        return self._frame[np.asarray(rows)]


def factorize(values: Any) -> tuple[Integers, Sequence[Any]]:
    """The place of each value among the distinct ones, in the order of their first row, and these; of a column, a
    series or a list. Absent is −1."""
    if hasattr(values, "factorize"):
        code, words = values.factorize()
        return code, words
    places: dict[Any, int] = {}
    code = [-1 if v is None else places.setdefault(v, len(places)) for v in values]
    return np.array(code, np.int64), list(places)


def matching(column: Any, test: Callable[[str], bool]) -> Booleans:
    """The rows of a column or series whose word passes `test`, which is asked once for each word."""
    if isinstance(column, Coded):
        return column.passing(test).to_numpy()  # type: ignore[no-any-return]
    code, words = column.factorize()
    return np.array([*map(test, words), False], bool)[code]


def plain(column: Any) -> list[Any]:
    """The values of a column or series, None for those that are absent."""
    if isinstance(column, Column):
        return column.tolist()
    found: list[Any] = column.astype(object).where(column.notna(), None).tolist()
    return found


def real(values: Iterable[float]) -> Real:
    """Real numbers as a column."""
    return np.asarray(values, dtype=float).view(Real)


def absent(kind: type, rows: int) -> Any:
    """A column in which nothing is known, of `Coded`, `Whole` or `Real`; it takes no memory."""
    if kind is Real:
        return np.broadcast_to(np.float64(np.nan), rows).view(Real)
    nothing = np.broadcast_to(np.int64(0), rows)
    if kind is Whole:
        return Whole(nothing, np.broadcast_to(np.False_, rows))
    return Coded([], np.broadcast_to(np.int32(-1), rows))


def integers(values: Any, known: Booleans | None = None) -> Whole:
    """Whole numbers of a column; absent where negative, or where not `known`."""
    if isinstance(values, Whole):
        return values
    values = np.asarray(values).astype(np.int64)
    return Whole(values, values >= 0 if known is None else known)


def same(word: str, rows: int) -> Coded:
    """A column with the same word in all rows."""
    return Coded([word], np.broadcast_to(np.int32(0), rows))
