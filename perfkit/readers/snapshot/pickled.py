"""Plain objects out of a pickle, without running anything in it.

A pickle is a program. Only the part of its language that builds dictionaries, lists, tuples, text, numbers, booleans
and None is let through: all of the file is walked first, opcode by opcode, and an opcode that imports, calls, or sets
attributes ends the reading. What passed is built by Python's unpickler, which is not allowed to import either.

Sizes are bounded: no text is longer than what is left of the file, a number has nine bytes at most, the memo 17 million
entries, and a tuple holds numbers alone (the hash of nested ones takes time without a bound). A list that comes again
by the memo counts again where it is read (`perfkit.readers.snapshot.read`).
"""

from __future__ import annotations

import mmap
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any

from perfkit.errors import InputError

_AGAIN = "Write it again with torch.cuda.memory._dump_snapshot."
_RUN = 20_000  # opcodes that one match takes: without a bound its bookkeeping would grow with the file
_LET = b"})(]elusadN\x88\x89\x94KhjqrMJG\x8a\x8c"  # the opcodes that `_FIXED` walks, but for those of tuples

# Opcodes whose length is known from their first bytes, as one expression that walks many of them in a match.
_LONG1 = b"\x8a(?:%s)" % b"|".join(re.escape(bytes([size])) + b".{%d}" % size for size in (8, 7, 9, *range(7)))
_TEXT = b"\x8c(?:%s)" % b"|".join(re.escape(bytes([size])) + b".{%d}" % size for size in range(256))
_NUMBER = b"(?:K.|M..|J.{4}|%s)" % _LONG1
_FIXED = [
    b"[})(\\]elusadN\x88\x89\x94]+",
    b"%s(?:\x85|%s(?:\x86|%s\x87))" % ((_NUMBER,) * 3),
    b"[Kh].",  # BININT1, BINGET
    b"j.{4}",  # LONG_BINGET
    b"q.",  # BINPUT
    b"r.{3}\0",  # LONG_BINPUT
    b"M..",
    b"J.{4}",
    b"G.{8}",  # BINFLOAT
    _LONG1,
    _TEXT,
]
_WALK = re.compile(b"(?:%s){1,%d}" % (b"|".join(_FIXED), _RUN), re.DOTALL)
_LENGTHS = {b"X": 4, b"\x8d": 8}  # BINUNICODE, BINUNICODE8: bytes of their length
_FRAME, _PROTO, _STOP = b"\x95", b"\x80", b"."
_DAMAGE = (  # what the unpickler raises where opcodes do not fit together
    pickle.UnpicklingError, EOFError, UnicodeDecodeError, MemoryError, OverflowError, TypeError, ValueError, IndexError,
    KeyError, AttributeError, RecursionError,
)  # fmt: skip
_NAMES = {code.code.encode("latin-1"): code.name for code in pickletools.opcodes}


class _Unpickler(pickle.Unpickler):
    """Builds what was walked. Neither method is reached: no opcode that leads to it is let through."""

    def find_class(self, module: str, name: str, /) -> Any:
        raise pickle.UnpicklingError(f"imports {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("refers to an object outside")


def plain_objects(path: Path) -> Any:
    """The object in the pickle at `path`.

    Raises `InputError` for a file that is damaged, or that holds anything but plain data: nothing in it is executed.
    """
    try:
        with path.open("rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                walk(path, content)
            return _Unpickler(file).load()
    except _DAMAGE as error:
        raise InputError(f"{path} is damaged: {str(error) or type(error).__name__}.", _AGAIN) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error


def walk(path: Path, content: bytes | mmap.mmap) -> None:
    """Check that `content` is one pickle of plain data, from its first byte to its last opcode.

    Raises `InputError`, which names the opcode that is not let through, or says where the file is damaged.
    """
    if content[:1] != _PROTO or not 2 <= ord(content[1:2] or b"\0") <= 5:
        raise InputError(f"{path} is not a pickle of a known protocol.", _AGAIN)
    at, size = 2, len(content)
    while at < size:
        if match := _WALK.match(content, at):  # type: ignore[arg-type]
            at = match.end()
            continue
        code = content[at : at + 1]
        if code == _STOP:
            return
        at = _after(path, content, at, code)
    raise InputError(f"{path} is cut off after {size:,} bytes.", _AGAIN)


def _after(path: Path, content: bytes | mmap.mmap, at: int, code: bytes) -> int:
    """The place after an opcode with a length and its content. Raises `InputError` for any other."""
    left = len(content) - at - 1
    if code == _FRAME:
        length, behind = _number(content, at + 1, 8), at + 9
        if length > left - 8:
            raise InputError(f"{path} is cut off: {length:,} bytes should follow byte {behind:,}.", _AGAIN)
        return behind
    if code in _LENGTHS:
        behind = at + 1 + _LENGTHS[code]
        length = _number(content, at + 1, _LENGTHS[code])
        if length > left - _LENGTHS[code]:
            raise InputError(f"{path} is cut off: text of {length:,} bytes should follow byte {behind:,}.", _AGAIN)
        return behind + length
    if code in _LET:
        raise InputError(f"{path} is cut off, or damaged at byte {at:,}.", _AGAIN)
    name = _NAMES.get(code)
    if name is None:
        raise InputError(f"{path} is damaged: byte {at:,} begins no opcode of a pickle.", _AGAIN)
    raise InputError(
        f"{path} holds more than plain data (the opcode {name} at byte {at:,}), as no memory snapshot does: it is not "
        "opened, and nothing in it is run.",
        "Give a file that torch.cuda.memory._dump_snapshot wrote.",
    )


def _number(content: bytes | mmap.mmap, at: int, size: int) -> int:
    return int.from_bytes(content[at : at + size], "little")
