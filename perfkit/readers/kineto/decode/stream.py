"""The text of a trace file, plain or compressed, in blocks, and repaired where PyTorch wrote names unescaped.

A block is decompressed when it is asked for. A thread that prepares it meanwhile gains nothing: it needs Python's lock
between any two calls, and each time both threads wait for as long as isal takes to decompress a block.

PyTorch's exporter escapes nothing: it drops line ends, turns a backslash into a slash, and leaves a double quote in the
middle of the text (2.14 writes a single quote, old versions leave tabs and backslashes too). It writes each text of a
program's own on one line, so that its end is known: a name before `"pid"`, a text that stands alone on its line, a call
stack. Only such texts are repaired, and only where they are invalid JSON; damage of any other kind stays."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from perfkit.errors import InputError

inflating: Any = zlib
_BROKEN: tuple[type[Exception], ...] = (EOFError, zlib.error)
try:
    from isal import isal_zlib

    inflating = isal_zlib  # the functions of zlib, three times as fast
    _BROKEN = (*_BROKEN, inflating.error)
except ImportError:
    pass

AGAIN = "Capture it again."
RECORD = "Record one with torch.profiler (`perfkit capture -- COMMAND` does), and give its trace."
PIECE = 1 << 19  # bytes of text decoded at once; twice as many take more memory and no less time
# The largest real traces shrink about 40 times. What shrinks 250 times is a bomb.
_MOST_SHRUNK, _UNSUSPICIOUS = 250, 1 << 26
_GZIP = b"\x1f\x8b"


def blocks(path: Path) -> Iterator[bytes]:
    """The file's text in blocks of about `PIECE` bytes, decompressed.

    Raises `InputError` for a file that cannot be read, is damaged, or grows beyond reason when decompressed.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            yield from _unpacked(file, path) if packed else iter(lambda: file.read(PIECE), b"")
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.", "Give the path of a run folder or profile.") from error
    except _BROKEN as error:
        raise InputError(f"{path} is damaged: its compressed content is broken or cut off.", AGAIN) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error


def _unpacked(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """The content of a gzip file of one or several members, at most `PIECE` bytes at a time; checksums are checked."""
    taken = given = 0
    data, member = b"", inflating.decompressobj(wbits=31)
    while True:
        if not data:
            data = file.read(1 << 17)
            taken += len(data)
        if member.eof:
            data = data.lstrip(b"\0")  # padding between and after members
            if not data:
                if file.peek(1) if hasattr(file, "peek") else b"":
                    continue
                return
            member = inflating.decompressobj(wbits=31)
        if not data:
            raise EOFError
        text = member.decompress(data, PIECE)
        data = member.unused_data if member.eof else member.unconsumed_tail
        given += len(text)
        if given > _UNSUSPICIOUS and given > _MOST_SHRUNK * taken:
            raise InputError(
                f"{path} grows more than {_MOST_SHRUNK} times when it is decompressed: it is not a trace.",
                "Give a trace that torch.profiler wrote.",
            )
        if text:
            yield text
        del text  # the next block takes its memory


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
    """Return what `read` makes of the text of the trace at `path`, and a sentence if that had to be repaired, else "".

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
        """A sentence about the texts that were repaired; "" where only numbers were repaired."""
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
