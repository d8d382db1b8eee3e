"""The header of llm.c's files: 256 int32, little endian, whose first word says what the file is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from perfkit.errors import InputError
from perfkit.run_folder import written_whole

CHECKPOINT, DEBUG_STATE, TOKENIZER, TOKENS, EVALUATION = 20240326, 20240327, 20240328, 20240520, 20240522
WIDE_TOKENS = 20240801  # of Llama 3, whose vocabulary needs more than 16 bits
KINDS = {
    CHECKPOINT: "an llm.c checkpoint",
    DEBUG_STATE: "an llm.c debug state",
    TOKENIZER: "an llm.c tokenizer",
    TOKENS: "llm.c token data",
    WIDE_TOKENS: "llm.c token data of Llama 3",
    EVALUATION: "llm.c evaluation data",
}
WORDS = 256
BYTES = 4 * WORDS


def kind_of(path: Path) -> str:
    """Return the kind of file by the header's magic number, such as "llm.c token data"; "" for anything else."""
    with path.open("rb") as file:
        head = file.read(4)
    return KINDS.get(int.from_bytes(head, "little"), "") if len(head) == 4 else ""


def read_header(path: Path, magic: int) -> np.ndarray:
    """The 256 words of a file that starts with `magic`; raises `InputError` for any other, and for a missing one."""
    what = KINDS[magic]
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES)
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.", f"Give {what}.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    found = int.from_bytes(raw[:4], "little")
    if len(raw) >= 4 and found != magic:
        instead = f"It is {KINDS[found]}." if found in KINDS else ""
        raise InputError(f"{path} is not {what}: its magic number is {found}, not {magic}.", instead)
    if len(raw) < BYTES:
        raise InputError(f"{path} is not {what}: it is shorter than the header of {BYTES} bytes.")
    return np.frombuffer(raw, dtype="<i4")


def make_header(*words: int) -> np.ndarray:
    """A header that starts with `words`, zero after them."""
    header = np.zeros(WORDS, dtype="<i4")
    header[: len(words)] = words
    return header


def check_version(path: Path, header: np.ndarray, known: dict[int, str]) -> int:
    """The version in the header; raises `InputError`, naming the `known` ones, for another."""
    version = int(header[1])
    if version not in known:
        names = ", ".join(f"{number} ({text})" for number, text in known.items())
        kind = KINDS[int(header[0])].removeprefix("an ").removeprefix("llm.c ")
        raise InputError(f"{path}: version {version} of llm.c's {kind} is unknown.", f"Known: {names}.")
    return version


def check_size(path: Path, expected: int) -> None:
    """Raise `InputError` unless the file has as many bytes as its header promises."""
    size = path.stat().st_size
    if size != expected:
        what = "is truncated" if size < expected else "is too long"
        raise InputError(f"{path} {what}: its header promises {expected:,} bytes, it has {size:,}.")


def mapped(path: Path, dtype: str, offset: int) -> np.ndarray:
    """The file from `offset` on as an array that is read when it is looked at."""
    if path.stat().st_size <= offset:  # an empty body cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset)


def write(path: Path, header: np.ndarray, body: Callable[[BinaryIO], object]) -> None:
    """Write the header and what `body` writes, whole or not at all. Raises `RunFailed` when that is impossible."""
    with written_whole(path, "Free space there.") as temporary, temporary.open("wb") as file:
        file.write(header.tobytes())
        body(file)
