"""Recorded arguments of operators as texts of the file: what repeats is parsed once, by who needs its values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from perfkit.readers.kineto.decode.events import Key
from perfkit.readers.kineto.decode.typed import Args

SEPARATOR = b"\0"  # between texts of the file that are joined; no JSON holds it
_ARGUMENTS = attrgetter("dims", "types", "strides", "concrete")


def recorded(args: Iterable[Args]) -> Iterator[bytes]:
    """Of each event the recorded arguments as one text, which tells kinds of calls from another."""
    return map(SEPARATOR.join, map(_ARGUMENTS, args))


def key_of(name: str, text: bytes) -> Key:
    """The kind of call behind a name and a text that `recorded` gave."""
    dims, types, strides, concrete = text.split(SEPARATOR, 3)
    return (name, dims, types, strides, concrete)


@lru_cache(1024)
def decoded(text: bytes) -> Any:
    """The value of a JSON text, not to be changed, for the same text comes back; None where it is none."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
