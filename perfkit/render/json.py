"""Records as JSON, as they are, in base units: the report (`perfkit.analysis.results`) and what other commands find."""

from __future__ import annotations

import msgspec


def render(record: object) -> str:
    """Indented JSON; unknown values are null."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1).decode() + "\n"
