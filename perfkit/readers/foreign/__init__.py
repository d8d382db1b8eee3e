"""Kinds of files that people of this field have and perfkit does not read: the name of each, and the next step.

A table a group: `documents` (JSON), `binaries`, `texts`. What stands first in a table is asked first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfkit.readers.sniff import Head


@dataclass(frozen=True)
class Foreign:
    """One kind: `is_` completes "FILE is …", `next_step` is a sentence, `knows(head)` looks at the content."""

    is_: str
    next_step: str
    knows: Callable[[Head], bool]


def foreign_kind(head: Head) -> Foreign | None:
    """Return the kind of a file that no format knows, or that looks like a trace; None for any other file."""
    from perfkit.readers.foreign import binaries, documents, texts

    if head.is_json and not binaries.is_marshalled(head):
        kinds: tuple[Foreign, ...] = () if head.is_of_torch else (*documents.KINDS, *texts.KINDS)
    else:
        kinds = (*binaries.KINDS, *texts.KINDS)
    return next((kind for kind in kinds if kind.knows(head)), None)
