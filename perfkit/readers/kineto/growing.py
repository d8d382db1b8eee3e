"""Columns that grow piece by piece without leaving small arrays all over the heap, where they would hold its memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_BLOCK = 1 << 17  # rows


class Columns:
    """Named columns of one length; `taken` joins one and forgets it. A block's last part may be unused until then."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[np.ndarray]] = {}
        self._used = _BLOCK  # rows of the last block of each column

    def add(self, **columns: np.ndarray) -> None:
        """Append to each column; what is wider than the column so far widens it."""
        count, done = len(next(iter(columns.values()))), 0
        while done < count:
            if self._used == _BLOCK:
                self._open(columns)
            taken = min(_BLOCK - self._used, count - done)
            for name, part in columns.items():
                block = self._blocks[name][-1]
                if part.dtype != block.dtype:
                    block = self._widened(name, part.dtype)
                block[self._used : self._used + taken] = part[done : done + taken]
            self._used, done = self._used + taken, done + taken

    def _open(self, columns: Mapping[str, np.ndarray]) -> None:
        """Begin a new block of each column."""
        self._used = 0
        for name, part in columns.items():
            blocks = self._blocks.setdefault(name, [])
            blocks.append(np.empty(_BLOCK, blocks[-1].dtype if blocks else part.dtype))

    def _widened(self, name: str, dtype: Any) -> np.ndarray:
        """The last block of a column that can hold `dtype` too."""
        blocks = self._blocks[name]
        wide = np.promote_types(blocks[-1].dtype, dtype)
        if wide != blocks[-1].dtype:
            blocks[:] = [b.astype(wide) for b in blocks]
        return blocks[-1]

    def taken(self, name: str, dtype: Any = np.int64, change: Callable[[Any], Any] | None = None) -> Any:
        """The whole column, each block put through `change`; in `dtype` where it is empty."""
        blocks = self._blocks.pop(name, [])
        if not blocks:
            return np.empty(0, dtype)
        blocks[-1] = blocks[-1][: self._used]
        if change is not None:
            blocks = [change(b) for b in blocks]
        return np.concatenate(blocks) if len(blocks) > 1 else blocks[0]

    def smallest(self, name: str) -> float | None:
        """The smallest value of a column, None where it is empty."""
        blocks = self._blocks.get(name, [])
        if not blocks:
            return None
        return float(min(b[: self._used if b is blocks[-1] else None].min() for b in blocks))
