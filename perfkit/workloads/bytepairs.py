"""Byte-pair vocabularies: GPT-2's own from a local folder, or one trained from the text itself.

Every byte has a token, so they can encode any text. The end-of-text token precedes each document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.errors import InputError, Unavailable

END_OF_TEXT = "<|endoftext|>"
SMALLEST = 257  # the bytes and the end-of-text token

_OWN_FILE = "tokenizer.json"
_GPT2_FILES = ("vocab.json", "merges.txt")
# Bytes of text for each token of the vocabulary: this keeps most tokens frequent enough to be learnt.
_BYTES_PER_ENTRY = 25


@dataclass(frozen=True)
class Vocabulary:
    """A byte-pair vocabulary; `origin` says in a few words where it comes from."""

    tokenizer: Any  # tokenizers.Tokenizer
    origin: str

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(self.tokenizer.get_vocab_size())

    def encode(self, documents: Sequence[str]) -> np.ndarray:
        """The tokens of all documents, int32 (n,), the end-of-text token before each where the vocabulary has one."""
        end = self.tokenizer.token_to_id(END_OF_TEXT)
        start = [] if end is None else [end]
        encoded = self.tokenizer.encode_batch(list(documents), add_special_tokens=False)
        parts = [np.array([*start, *one.ids], dtype=np.int32) for one in encoded]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of `tokens`; tokens beyond the vocabulary are left out."""
        return str(self.tokenizer.decode([t for t in tokens if t < self.size], skip_special_tokens=False))

    def digest(self) -> str:
        """A digest of everything that decides how text becomes tokens."""
        return hashlib.sha256(self.tokenizer.to_str().encode()).hexdigest()

    def to_json(self) -> str:
        """The vocabulary as the text of a `tokenizer.json`."""
        return str(self.tokenizer.to_str())


def folder_has_vocabulary(folder: Path) -> bool:
    """Return whether `folder` holds a vocabulary: `tokenizer.json`, or `vocab.json` with `merges.txt`."""
    return (folder / _OWN_FILE).is_file() or all((folder / name).is_file() for name in _GPT2_FILES)


def open_folder(folder: Path) -> Vocabulary:
    """The vocabulary in `folder`. Raises `InputError` when its files are damaged."""
    tokenizers = _package()
    try:
        if all((folder / name).is_file() for name in _GPT2_FILES):
            pairs = tokenizers.models.BPE.from_file(*(str(folder / name) for name in _GPT2_FILES))
            tokenizer = _byte_level(tokenizers, pairs)
        else:
            tokenizer = tokenizers.Tokenizer.from_file(str(folder / _OWN_FILE))
    except Exception as error:  # the package raises plain Exception for a damaged file
        raise InputError(f"The vocabulary in {folder} is damaged: {error}.") from error
    return Vocabulary(tokenizer, f"vocabulary of {tokenizer.get_vocab_size()} from {folder.name}/")


def from_json(text: str, origin: str) -> Vocabulary:
    """The vocabulary whose `to_json` is `text`. Raises `ValueError` when it is damaged."""
    try:
        return Vocabulary(_package().Tokenizer.from_str(text), origin)
    except Unavailable:
        raise
    except Exception as error:
        raise ValueError(str(error)) from error


def train(documents: Sequence[str], size: int) -> Vocabulary:
    """A vocabulary of at most `size` entries made from the most frequent pairs of `documents`."""
    tokenizers = _package()
    tokenizer = _byte_level(tokenizers, tokenizers.models.BPE())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return Vocabulary(tokenizer, trained_origin(tokenizer.get_vocab_size()))


def trained_origin(size: int) -> str:
    """How a vocabulary made by `train` is described."""
    return f"byte-pair vocabulary of {size} trained from it"


def size_for(text_bytes: int, limit: int) -> int:
    """Entries of a vocabulary that suits `text_bytes` of text: a power of two from 512 on, at most `limit`."""
    wanted = max(512, 1 << (max(text_bytes // _BYTES_PER_ENTRY, 1).bit_length() - 1))
    return min(wanted, limit)


def _byte_level(tokenizers: Any, pairs: Any) -> Any:
    """A tokenizer that splits text as GPT-2 does and works on bytes."""
    tokenizer = tokenizers.Tokenizer(pairs)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def _package() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise Unavailable(
            "Text becomes tokens through the package tokenizers, which is not installed.",
            "Install it: pip install 'perfkit[data]', or use --data synthetic.",
        ) from error
    return tokenizers
