"""Columns that grow piece by piece without leaving small arrays all over the heap, where they would hold its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_BLOCK = 1 << 17  # rows


class Columns:
    """Named columns; `taken` joins one and forgets it. A block's last part may be unused until then."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[np.ndarray]] = {}
        self._used: dict[str, int] = {}  # rows of the last block

    def add(self, **columns: np.ndarray) -> None:
        """Append to each column; what is wider than the column so far widens it."""
        for name, part in columns.items():
            blocks = self._blocks.setdefault(name, [])
            if blocks and np.promote_types(blocks[-1].dtype, part.dtype) != blocks[-1].dtype:
                blocks[:] = [b.astype(part.dtype) for b in blocks]
            while len(part):
                if not blocks or self._used[name] == _BLOCK:
                    blocks.append(np.empty(_BLOCK, part.dtype if not blocks else blocks[-1].dtype))
                    self._used[name] = 0
                at = self._used[name]
                taken = min(_BLOCK - at, len(part))
                blocks[-1][at : at + taken] = part[:taken]
                self._used[name] = at + taken
                part = part[taken:]

    def taken(self, name: str, dtype: Any = np.int64, change: Callable[[Any], Any] | None = None) -> Any:
        """The whole column, each block put through `change`; in `dtype` where it is empty."""
        blocks = self._blocks.pop(name, [])
        if not blocks:
            return np.empty(0, dtype)
        blocks[-1] = blocks[-1][: self._used[name]]
        if change is not None:
            blocks = [change(b) for b in blocks]
        return np.concatenate(blocks)

    def smallest(self, name: str) -> float | None:
        """The smallest value of a column, None where it is empty."""
        blocks = self._blocks.get(name, [])
        if not blocks:
            return None
        return float(min(b[: self._used[name] if b is blocks[-1] else None].min() for b in blocks))
