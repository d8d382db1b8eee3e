"""llm.c's tokenizer: the bytes of each token, enough to turn tokens into text.

header  [0] 20240328, [1] version, [2] number of tokens, [3] end-of-text token (from version 2 on)
body    for each token: its length in bytes (uint8, 1 to 255), and the bytes
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.errors import InputError
from perfkit.workloads.bytepairs import END_OF_TEXT, Vocabulary
from perfkit.workloads.llmc import header as files

_VERSIONS = {1: "without an end-of-text token", 2: "with one"}
_LONGEST = 255
GPT2_END = 50256  # what a version 1 file means by its end of text


@dataclass(frozen=True)
class Tokenizer:
    """The bytes of every token by its number, and the token that ends a text."""

    tokens: tuple[bytes, ...]
    end_of_text: int

    def decode(self, tokens: Sequence[int]) -> bytes:
        """Return the bytes of `tokens`; those beyond the vocabulary are left out."""
        return b"".join(self.tokens[t] for t in tokens if 0 <= t < len(self.tokens))


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in `path`. Raises `InputError` when the file is something else, damaged, or truncated."""
    header = files.read_header(path, files.TOKENIZER)
    version = files.check_version(path, header, _VERSIONS)
    count = int(header[2])
    body = path.read_bytes()[files.BYTES :]
    tokens: list[bytes] = []
    at = 0
    for _ in range(count):
        if at >= len(body) or body[at] == 0 or at + 1 + body[at] > len(body):
            raise InputError(f"{path} is damaged: it promises {count:,} tokens, and number {len(tokens)} is not whole.")
        tokens.append(body[at + 1 : at + 1 + body[at]])
        at += 1 + body[at]
    if at != len(body) or count < 1:
        raise InputError(f"{path} is damaged: {len(body) - at:,} bytes follow its {count:,} tokens.")
    end = GPT2_END if version == 1 else int(header[3])
    return Tokenizer(tuple(tokens), end)


def write_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    """Write `tokenizer` as version 2.

    Raises `InputError` for a token that is empty or longer than 255 bytes, `RunFailed` when the file cannot be written.
    """
    for number, token in enumerate(tokenizer.tokens):
        if not 1 <= len(token) <= _LONGEST:
            raise InputError(f"Token {number} has {len(token)} bytes; llm.c's tokenizer holds 1 to {_LONGEST} a token.")
    header = files.make_header(files.TOKENIZER, 2, len(tokenizer.tokens), tokenizer.end_of_text)
    body = b"".join(bytes([len(token)]) + token for token in tokenizer.tokens)
    files.write(path, header, lambda file: file.write(body))


@functools.cache
def byte_of() -> dict[str, int]:
    """Return the byte of each character of a byte-level vocabulary.

    Printing bytes have their own character, the others the characters from U+0100 on, in order (GPT-2's table).
    """
    printing = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printing]
    return {chr(byte): byte for byte in printing} | {chr(256 + i): byte for i, byte in enumerate(others)}


def tokenizer_of(vocabulary: Vocabulary) -> Tokenizer:
    """The tokens of `vocabulary` as bytes.

    Raises `InputError` when it is not a byte-level one, has gaps, or no end-of-text token.
    """
    end = vocabulary.tokenizer.token_to_id(END_OF_TEXT)
    if end is None:
        raise InputError(f"The {vocabulary.origin} has no token {END_OF_TEXT}, which llm.c's tokenizer needs.")
    texts = [vocabulary.tokenizer.id_to_token(number) for number in range(vocabulary.size)]
    return Tokenizer(tuple(_bytes(text, number, vocabulary.origin) for number, text in enumerate(texts)), int(end))


def _bytes(text: str | None, number: int, origin: str) -> bytes:
    if text == END_OF_TEXT:
        return text.encode()
    known = byte_of()
    if not text or any(c not in known for c in text):
        what = "is missing" if text is None else f"is {text!r}"
        raise InputError(
            f"The {origin} is not a byte-level one as GPT-2's is: token {number} {what}.",
            "Give a folder with GPT-2's vocab.json and merges.txt.",
        )
    return bytes(known[c] for c in text)
