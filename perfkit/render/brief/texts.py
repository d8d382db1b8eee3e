"""Texts of brief answers: on one line, without control characters, and cropped between words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfkit.render.cells import clean

FINDINGS = 5
LONGEST_PATH = 400  # characters


def cropped(text: str, length: int) -> str:
    """Return the text on one line; one that is too long ends with a whole sentence, else with a whole word."""
    whole = clean(text, len(text) + 1)
    if len(whole) <= length:
        return whole
    kept = whole[: length - 1]
    sentence = kept.rfind(". ") + 1
    return kept[:sentence] if sentence > length // 2 else f"{kept.rpartition(' ')[0] or kept}…"


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of `values`: what is None, empty text or an empty list is left out."""
    return {name: value for name, value in values.items() if value is not None and value != "" and value != []}
