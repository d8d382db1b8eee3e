"""NVIDIA's own advice, stored in the report, as plain text.

Messages carry markup: `@url:TEXT:ADDRESS@`, `@section:ID:TEXT@`, `@source:…:TEXT@`. The text is kept, the rest dropped.
"""

from __future__ import annotations

import re
from typing import Any

from perfkit.readers.ncu.results import NcuRule

_URL = re.compile(r"@url:([^@]*?):(https?://[^@]*)@")
_LINK = re.compile(r"@(?:section|source|sass|metric|chart|page)[^@:]*:[^@]*?:?([^@:]*)@")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_KINDS = {0: "", 1: "ok", 2: "optimization", 3: "warning", 4: "error"}
_SCOPES = {1: "local", 2: "global"}


def clean(text: str) -> str:
    """`text` without NVIDIA's markup, control characters and line breaks."""
    text = _LINK.sub(r"\1", _URL.sub(r"\1", text))
    return " ".join(_CONTROL.sub("", text).split())


def as_facts(rules: list[NcuRule]) -> list[dict[str, Any]]:
    """Rules as plain data: name, section, kind, text, and the estimated speed-up in per cent with its scope.

    Local estimates are about the same time and overlap: they must never be added up.
    """
    return [
        {
            "rule": clean(rule.name),
            "section": clean(rule.section),
            "kind": _KINDS.get(rule.kind, ""),
            "title": clean(rule.title),
            "text": clean(rule.message),
            "speedup": rule.speedup,
            "scope": _SCOPES.get(rule.scope, ""),
        }
        for rule in rules
        if rule.message or rule.title
    ]
