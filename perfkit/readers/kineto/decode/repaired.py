"""Repairs of traces in which PyTorch wrote names unescaped: a double quote in a name makes the file invalid JSON.

PyTorch's exporter escapes nothing: it drops line ends, turns a backslash into a slash, and leaves a double quote in the
middle of the text (2.14 writes a single quote, old versions leave tabs and backslashes too). It writes each text of a
program's own on one line, so that its end is known: a name before `"pid"`, a text that stands alone on its line, a call
stack. Only such texts are repaired, and only where they are invalid JSON; damage of any other kind stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from perfkit.errors import InputError
from perfkit.readers.kineto.decode.stream import blocks

T = TypeVar("T")
_TEXTS = (
    re.compile(rb'^([ \t]*"[^"\n]{1,100}": ")([^\n]*)(",?[ \t\r]*)$', re.MULTILINE),
    re.compile(rb'("name": ")([^\n]*?)(", ?"pid": )'),
    re.compile(rb'("Call stack": ")([^\n]*?)("(?:, "[A-Z]|[ \t\r]*(?:\}|\n|\Z)))'),
)
# Bare NaN and infinity, which JSON lacks, outside of texts; Python writes them, and PyTorch for shares of nothing.
_NO_NUMBER = re.compile(rb'"(?:[^"\\\n]|\\.)*"|[-+]?\b(?:NaN|nan|Infinity|inf)\b')
_NEXT_KEY = re.compile(rb'", *"[^"\n]*": ')  # a text that holds such is more than one
_NAMED = 3  # repaired texts that are quoted


def read_text(path: Path, read: Callable[[Iterable[bytes]], T]) -> tuple[T, str]:
    """What `read` makes of the text of the trace at `path`, and a sentence where that had to be repaired, else "".

    Raises what `read` does.
    """
    try:
        return read(blocks(path)), ""
    except InputError as error:
        if not isinstance(error.__cause__, msgspec.DecodeError):
            raise
        text = _Repaired(blocks(path))
        try:
            found = read(text)
        except InputError:
            raise error from None
        return found, text.sentence


class _Repaired:
    """The blocks of a trace with such texts escaped; `texts` are those that were."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self.texts: dict[str, None] = {}
        self._blocks = blocks

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        for block in self._blocks:
            text = rest + block
            cut = text.rfind(b"\n") + 1 or max(text.rfind(b"}, {"), text.rfind(b"},{")) + 1
            rest = text[cut:]
            yield self._escaped(text[:cut])
        yield self._escaped(rest)

    @property
    def sentence(self) -> str:
        """A sentence about the texts that were repaired; "" where only numbers were none."""
        if not self.texts:
            return ""
        quoted = ", ".join(ascii(text[:60]) for text in list(self.texts)[:_NAMED])
        more = f" and {len(self.texts) - _NAMED} more" if len(self.texts) > _NAMED else ""
        return f"PyTorch wrote names into the trace that are invalid JSON; they were repaired: {quoted}{more}"

    def _escaped(self, text: bytes) -> bytes:
        for pattern in _TEXTS:
            text = pattern.sub(self._escape, text)
        return _NO_NUMBER.sub(lambda found: found[0] if found[0][:1] == b'"' else b"null", text)

    def _escape(self, found: re.Match[bytes]) -> bytes:
        before, content, behind = found.groups()
        if _is_text(content) or _NEXT_KEY.search(content):
            return found[0]
        try:
            meant = content.decode()
        except UnicodeDecodeError:
            return found[0]
        self.texts[meant] = None
        return before + json.dumps(meant, ensure_ascii=False)[1:-1].encode() + behind


def _is_text(content: bytes) -> bool:
    try:
        msgspec.json.decode(b'"' + content + b'"', type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
