"""Result of an inspection: facts in order, and the text that they were read from."""

from __future__ import annotations

import msgspec


class Inspected(msgspec.Struct, kw_only=True):
    """One kernel or program: `title`, facts as (name, value), notes, and the `listing` they were read from."""

    title: str
    facts: list[tuple[str, str]]
    notes: list[str] = []
    listing: str = ""
