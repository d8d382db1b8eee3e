"""Columns of words and whole numbers, as readers make them and as pandas keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.table import TEXT

Integers = npt.NDArray[Any]
Booleans = npt.NDArray[np.bool_]
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Coded:
    """A column of words: the distinct `words`, and for each row the place of its word in them, −1 for none."""

    words: list[str]
    code: Integers

    @classmethod
    def of(cls, values: Coded | Sequence[str | None]) -> Coded:
        """The same column from a plain list."""
        if isinstance(values, Coded):
            return values
        places: dict[str, int] = {}
        code = [-1 if v is None else places.setdefault(v, len(places)) for v in values]
        return cls(list(places), np.array(code, dtype=np.int32))

    def mapped(self, function: Callable[[str], str | None]) -> Coded:
        """Each word replaced by what `function` gives for it; None gives none."""
        new = Coded.of([function(word) for word in self.words])
        return Coded(new.words, np.append(new.code, np.int32(-1))[self.code])

    def array(self, dtype: str) -> Any:
        """The column in pandas, as text or as categories."""
        import pandas as pd

        if dtype == TEXT:
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
            pa.LargeStringArray.from_buffers(len(self.code), buffers[1], buffers[2], buffers[0]), dtype=TEXT
        )


def integers(values: Integers, known: Booleans | None = None) -> Any:
    """Whole numbers of a column in pandas; absent where negative, or where not `known`."""
    import pandas as pd

    values = np.asarray(values).astype(np.int64)
    return pd.arrays.IntegerArray(values, values < 0 if known is None else ~known)


def same(word: str, rows: int) -> Coded:
    """A column with the same word in all rows."""
    return Coded([word], np.zeros(rows, np.int32))
