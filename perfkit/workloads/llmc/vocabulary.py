"""A byte-pair vocabulary as llm.c's tokenizer: from GPT-2's written form of bytes to the bytes themselves."""

from __future__ import annotations

import functools

from perfkit.errors import InputError
from perfkit.workloads.bytepairs import END_OF_TEXT, Vocabulary
from perfkit.workloads.llmc.tokenizer import Tokenizer


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
