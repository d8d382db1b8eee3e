"""The events of a trace in pieces that each hold whole events, so that memory does not grow with the file.

Any JSON text of a trace can be cut: between two events stands a comma. Where one object ends and another begins is
nearly always such a place, and the decoder judges it: only text that was cut between two events is the text of a list.
Other text, cut between two objects inside an event, is followed from its beginning to a certain place.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from perfkit.columns import Integers
from perfkit.errors import InputError
from perfkit.readers.kineto.decode.stream import AGAIN, RECORD

T = TypeVar("T")
_NEAR = 1 << 14  # bytes before the end of a piece in which a border is guessed
_SHOWN = 4  # keys of other JSON
LONGEST = 1 << 28  # bytes of one event, and of the text before or after the list of events
_SUSPICIOUS = 1 << 22  # bytes of one event, and of what stands before the list: more may come of damage
# In a string the quote could only be the one that ends it.
_BORDER = re.compile(rb'\}[ \t\r\n]*(,)[ \t\r\n]*\{[ \t\r\n]*"')
_KEY_AND_COLON = 1 << 10  # bytes of a key as it is written, with the colon and the blanks after it
_KEY = re.compile(rb'(?<!\\)("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*\Z', re.DOTALL)


class Pieces:
    """The `text` of a trace, in blocks: its events by `decoded`, and then `around`, the JSON text of all but these."""

    def __init__(self, path: Path, text: Iterable[bytes]) -> None:
        self.path, self.around = path, b""
        self._blocks = iter(text)
        self._text = _Text(path)

    def decoded(self, decode: Callable[[memoryview], T]) -> Iterator[T]:
        """Yield what `decode` makes of each piece, a list in JSON. It raises `msgspec.DecodeError` for other text,
        which it may be given too.

        A piece is overwritten when the next is asked for. Raises `InputError` when the file cannot be read, is damaged
        or is not a trace; then nothing that came before counts.
        """
        with damage_told(self.path):
            head, rest = _opened(self._blocks, self.path)
            for block in itertools.chain((rest,), self._blocks):
                self._text.append(block)
                del block  # the next one takes its memory, which is in the cache
                yield from self._text.whole_events(decode)
                if self._text.closed:
                    break
            else:
                yield from self._text.last_events(decode)
            self.around = head + self._text.behind(self._blocks)
            _check(self.around)


class _Text:
    """The events that were read and not yet decoded: a "[", and after it the text of the file."""

    def __init__(self, path: Path) -> None:
        self.closed = False  # the end of the list was decoded
        self._path = path
        self._memory = bytearray(b"[")  # kept for all pieces: fresh memory takes longer than copying
        self._size = 1
        self._cut = False  # events before these were decoded
        self._nesting: Nesting | None = None  # while the text is followed from its beginning, up to `_followed`
        self._followed = 0
        self._checked = _SUSPICIOUS

    def append(self, block: bytes) -> None:
        """Take over the next `block` of the file."""
        size = self._size + len(block)
        if size > LONGEST:
            raise _too_large(self._path)
        if size > len(self._memory):
            self._memory, old = bytearray(2 * size), self._memory
            self._memory[: self._size] = old[: self._size]
        memoryview(self._memory)[self._size : size] = block
        self._size = size

    def whole_events(self, decode: Callable[[memoryview], T]) -> Iterator[T]:
        """Yield what `decode` makes of the events that are whole, if there are any; they are gone afterwards."""
        border = self._likely_border()
        if border > 0:
            try:
                found = decode(self._list(border))
            except msgspec.DecodeError:  # a comma inside an event
                self._memory[border] = COMMA
            else:
                yield found
                del found
                self._drop(border)
                return
        yield from self.last_events(decode)
        if self._size > self._checked:
            self._checked = 2 * self._size
            _refuse_damage(memoryview(self._memory)[: self._size])

    def last_events(self, decode: Callable[[memoryview], T]) -> Iterator[T]:
        """The same, without guessing where an event ends."""
        border = self._certain_border()
        if border > 0:
            # In its own piece such a comma is not seen by the decoder.
            if not self._memory[1:border].strip() and (self._cut or not self.closed):
                raise msgspec.DecodeError("JSON is malformed: a comma without an event after it")
            yield decode(self._list(border))
            self._drop(border)

    def behind(self, source: Iterator[bytes]) -> bytes:
        """All that follows the events, from the end of their list on; what `source` holds of it is read."""
        if not self.closed:
            msgspec.json.decode(memoryview(self._memory)[: self._size], type=msgspec.Raw)  # says what is wrong
        text = bytearray(b"]") + self._memory[1 : self._size]
        for block in source:
            text += block
            if len(text) > LONGEST:
                raise _too_large(self._path)
        return bytes(text)

    def _list(self, border: int) -> memoryview:
        """The text before `border` as that of a list."""
        self._memory[border] = CLOSING
        return memoryview(self._memory)[: border + 1]

    def _drop(self, border: int) -> None:
        """Forget all before `border`, and it too."""
        rest = self._memory[border + 1 : self._size]
        self._size = 1 + len(rest)
        self._memory[1 : self._size] = rest
        self._cut, self._nesting, self._followed, self._checked = True, None, 0, _SUSPICIOUS

    def _likely_border(self) -> int:
        """The last comma between two objects, −1 where none is near, or no more events are whole than were before."""
        begin = max(1, self._size - _NEAR)
        found = list(_BORDER.finditer(self._memory, begin, self._size)) if self._nesting is None else []
        return found[-1].start(1) if found else -1

    def _certain_border(self) -> int:
        """The end of the list if it is there, else the last comma between two events, or −1."""
        if self._nesting is None:
            self._nesting, self._followed = Nesting(), 0
        border = -1
        for place, byte, depth in self._nesting.follow(self._memory, self._followed, self._size):
            ends = place[depth == 0]
            if len(ends):
                self.closed = True
                return int(ends[0])
            commas = place[(byte == COMMA) & (depth == 1)]
            border = int(commas[-1]) if len(commas) else border
        self._followed = self._size
        return border


def _opened(source: Iterator[bytes], path: Path) -> tuple[bytes, bytes]:
    """The text of a trace up to the "[" of its list of events, and what was read after that."""
    text, nesting, checked = bytearray(), Nesting(), 0
    for block in source:
        text += block
        for place, byte, depth in nesting.follow(text, len(text) - len(block), len(text)):
            chosen = (byte == OPENING) & (depth <= 2)
            for at, level in zip(place[chosen].tolist(), depth[chosen].tolist(), strict=True):
                if level == 1 or _names_events(text, at):
                    return _without_mark(text[: at + 1]), bytes(text[at + 1 :])
        if len(text) > LONGEST:
            raise _too_large(path)
        if len(text) > checked:
            checked = max(2 * len(text), _SUSPICIOUS)
            _refuse_damage(_without_mark(text))
    msgspec.json.decode(_without_mark(text), type=msgspec.Raw)  # says what is wrong
    raise InputError(f"{path} is JSON, but not a torch.profiler trace: it has no list of events{_keys(text)}.", RECORD)


def _keys(text: bytearray) -> str:
    """The first keys of a JSON object, for a sentence."""
    try:
        found = [ascii(key)[1:-1][:30] for key in msgspec.json.decode(_without_mark(text), type=dict[str, msgspec.Raw])]
    except msgspec.ValidationError:
        return ""
    return f" (its keys: {', '.join(found[:_SHOWN])}{', …' if len(found) > _SHOWN else ''})" if found else ""


def _without_mark(text: bytearray) -> bytes:
    return bytes(text).removeprefix(codecs.BOM_UTF8)


def _names_events(text: bytearray, at: int) -> bool:
    """Return whether the "[" at `at` is the value of "traceEvents"."""
    before = bytes(text[max(0, at - _KEY_AND_COLON) : at])
    key = _KEY.search(before) if b"traceEvents" in before or b"\\u" in before else None
    return key is not None and msgspec.json.decode(key[1]) == "traceEvents"


class _Around(msgspec.Struct):
    traceEvents: list[msgspec.Raw] = []


def _check(around: bytes) -> None:
    """Raise `DecodeError` where the text around the events is not JSON, or holds a second list of them."""
    kind: Any = _Around if around.lstrip()[:1] == b"{" else list[msgspec.Raw]
    if kind is _Around and msgspec.json.decode(around, type=_Around).traceEvents:
        raise msgspec.DecodeError("it holds two lists of events")
    msgspec.json.decode(around, type=msgspec.Raw)


def _refuse_damage(text: bytes | memoryview) -> None:
    """Raise `DecodeError` where `text`, the beginning of a longer one, is not JSON."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        if "truncated" not in str(error):
            raise


def _too_large(path: Path) -> InputError:
    return InputError(
        f"{path} holds an event of more than {LONGEST >> 20} MiB, or as much text around them: it is not a trace.",
        "Give a trace that torch.profiler wrote.",
    )


@contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """Make what the decoder says of damaged text an `InputError`."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not a torch.profiler trace, or it is damaged: {error}.", AGAIN) from error


COMMA, OPENING, CLOSING = b",[]"
_QUOTE, _BACKSLASH = b'"\\'
_PART = 1 << 16  # bytes looked at together: small enough that no array is made of fresh memory
_MARKS = bytes(byte if byte in b'"\\,[]{}' else 0 for byte in range(256))
_STEP = np.zeros(256, np.int8)
_STEP[list(b"[{")], _STEP[list(b"]}")] = 1, -1


class Punctuation(NamedTuple):
    """Commas, brackets and braces outside of strings, as columns: their places in the text, what they are, and how many
    brackets and braces are open after each."""

    place: Integers
    byte: Integers
    depth: Integers


class Nesting:
    """Follows JSON text from its beginning, part by part."""

    def __init__(self) -> None:
        self._depth, self._inside, self._escaped = 0, False, False

    def follow(self, text: bytes | bytearray, begin: int, end: int) -> Iterator[Punctuation]:
        """The marks of `text` from `begin` to `end`, some at a time."""
        for first in range(begin, end, _PART):
            place, byte, depth = self._follow(bytes(text[first : min(first + _PART, end)]))
            yield Punctuation(place + first, byte, depth)

    def _follow(self, part: bytes) -> Punctuation:
        marks = np.frombuffer(part.translate(_MARKS), np.uint8)
        place = np.flatnonzero(marks != 0)  # five times as fast as of the bytes themselves
        byte = marks[place]
        if self._escaped or b"\\" in part:
            kept = self._unescaped(place, byte, len(part))
            place, byte = place[kept], byte[kept]
        outside = (np.cumsum(byte == _QUOTE, dtype=np.uint8) & 1) == self._inside
        depth = self._depth + np.cumsum(_STEP[byte] * outside, dtype=np.int64)
        if len(place):
            self._depth, self._inside = int(depth[-1]), not outside[-1]
        chosen = outside & (byte != _QUOTE)
        return Punctuation(place[chosen], byte[chosen], depth[chosen])

    def _unescaped(self, place: Integers, byte: Integers, size: int) -> Integers:
        """Which marks of a part of `size` bytes are neither backslashes nor after one that escapes them."""
        slash = place[byte == _BACKSLASH]
        if self._escaped:
            slash = np.append(-1, slash)
        first = np.flatnonzero(np.diff(slash, prepend=-3) != 1)  # of each run of backslashes
        length = np.diff(first, append=len(slash))
        behind = (slash[first + length - 1] + 1)[length % 2 == 1]
        self._escaped = bool(len(behind) and behind[-1] == size)
        return (byte != _BACKSLASH) & ~np.isin(place, behind)
