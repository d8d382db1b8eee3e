"""The report as JSON: the record of `perfkit.analysis.results` as it is, in base units; `schema` is its version."""

from __future__ import annotations

import msgspec

from perfkit.analysis.results import Report


def render(report: Report) -> str:
    """Indented JSON; unknown values are null."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"
