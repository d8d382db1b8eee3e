"""llm.c's tokenizer: the bytes of each token, enough to turn tokens into text.

header  [0] 20240328, [1] version, [2] number of tokens, [3] end-of-text token (from version 2 on)
body    for each token: its length in bytes (uint8, 1 to 255), and the bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.errors import InputError
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
