"""Tokens for a language model: from text, from an llm.c token file, or synthetic.

A source gives windows of B·T + 1 consecutive tokens: all but the last are the inputs, all but the first the targets.
The same source gives the same window for the same step in every process.

Legend: B batch, T time (sequence length), V vocabulary.
"""

from __future__ import annotations

import functools
import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from perfkit.cache import cache_dir, digest
from perfkit.errors import InputError, RunFailed
from perfkit.run_folder import write_whole
from perfkit.workloads import bytepairs, llmc, text
from perfkit.workloads.bytepairs import Vocabulary

SYNTHETIC = "synthetic"


class TokenSource(ABC):
    """An endless stream of windows. `description` says what it is made of; `vocabulary` turns tokens into text."""

    description: str
    vocabulary: Vocabulary | None = None

    @abstractmethod
    def window(self, step: int, count: int) -> np.ndarray:
        """`count` + 1 consecutive tokens for step `step`, int64. Raises `InputError` when the source is too short."""


class ZipfTokens(TokenSource):
    """Seeded tokens whose frequencies fall as 1 / (id + 1), as the words of a text do by rank (Zipf's law)."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        self.seed = seed
        self.description = f"synthetic tokens (Zipf over {vocabulary:,}, seed {seed})"
        weights = 1.0 / np.arange(1, vocabulary + 1)
        self._cumulative = np.cumsum(weights / weights.sum())
        self._cumulative[-1] = 1.0

    def window(self, step: int, count: int) -> np.ndarray:
        """`count` + 1 tokens of step `step`, the same each time."""
        uniform = np.random.default_rng((self.seed, step)).random(count + 1)
        return np.searchsorted(self._cumulative, uniform, side="right").astype(np.int64)


class StoredTokens(TokenSource):
    """Tokens in an array, read one window after the other and from the start again."""

    def __init__(self, tokens: np.ndarray, description: str, name: str, vocabulary: Vocabulary | None = None) -> None:
        self.tokens, self.description, self.name, self.vocabulary = tokens, description, name, vocabulary

    def window(self, step: int, count: int) -> np.ndarray:
        """`count` + 1 tokens; steps take windows in turn. Raises `InputError` where the text is too short for one."""
        windows = (len(self.tokens) - 1) // count
        if windows < 1:
            raise InputError(
                f"{self.name} has {len(self.tokens):,} tokens; one batch needs {count + 1:,}.",
                "Give more text, or a smaller --batch-size or --sequence-length.",
            )
        start = (step % windows) * count
        return self.tokens[start : start + count + 1].astype(np.int64)


@functools.lru_cache(maxsize=4)
def open_tokens(data: str, vocabulary: int, seed: int, weights: str = "random") -> TokenSource:
    """The source that `--data` names, for a model with `vocabulary` entries.

    `data` is "synthetic", a text file, a folder of text files, or an llm.c token file. Text is encoded by the
    vocabulary next to the `weights`, else by one trained from the text. Raises `InputError` when the file is not what
    it should be, `Unavailable` when the package is missing that makes tokens from text.
    """
    if data == SYNTHETIC:
        return ZipfTokens(vocabulary, seed)
    path = Path(data).expanduser()
    if path.is_file() and (path.suffix == ".bin" or llmc.kind_of(path)):
        tokens = llmc.read_tokens(path, vocabulary)
        return StoredTokens(tokens, f"{path.name} ({len(tokens):,} tokens)", str(path), _vocabulary_beside(weights))
    return _from_text(path, vocabulary, _vocabulary_beside(weights))


def _vocabulary_beside(weights: str) -> Vocabulary | None:
    """The vocabulary in the folder of the weights, if one lies there."""
    path = Path(weights).expanduser()
    folder = path if path.is_dir() else path.parent
    if weights == "random" or not bytepairs.folder_has_vocabulary(folder):
        return None
    return bytepairs.open_folder(folder)


def _from_text(path: Path, limit: int, vocabulary: Vocabulary | None) -> StoredTokens:
    source = text.read(path)
    if vocabulary is None:
        if limit < bytepairs.SMALLEST:
            raise InputError(
                f"A model with a vocabulary of {limit} cannot hold text: bytes alone need {bytepairs.SMALLEST}.",
                "Use --data synthetic or another preset.",
            )
        vocabulary = _trained(source.documents, bytepairs.size_for(source.nbytes, limit))
    elif vocabulary.size > limit:
        raise InputError(f"The {vocabulary.origin} is too large: the model has {limit} entries.", "Use another preset.")
    tokens = _encoded(source.documents, vocabulary)
    description = f"{source.origin}, {len(tokens):,} tokens, {vocabulary.origin})"
    return StoredTokens(tokens, description, str(path), vocabulary)


def _trained(documents: Sequence[str], size: int) -> Vocabulary:
    """Train a vocabulary, or take it from the cache, where it lies by the content of the text."""
    path = cache_dir() / "vocabularies" / f"{digest('vocabulary', str(size), *documents)}.json"
    try:
        kept = bytepairs.from_json(path.read_text(encoding="utf-8"), "")
        return Vocabulary(kept.tokenizer, bytepairs.trained_origin(kept.size))
    except (OSError, ValueError):
        pass  # not there, or damaged: make it again
    vocabulary = bytepairs.train(documents, size)
    _keep(path, vocabulary.to_json())
    return vocabulary


def _encoded(documents: Sequence[str], vocabulary: Vocabulary) -> np.ndarray:
    """The tokens of `documents`, from the cache if they were made before."""
    path = cache_dir() / "tokens" / f"{digest('tokens', vocabulary.digest(), *documents)}.npy"
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        pass  # not there, or damaged: make it again
    tokens = vocabulary.encode(documents)
    buffer = io.BytesIO()
    np.save(buffer, tokens)
    _keep(path, buffer.getvalue())
    return tokens


def _keep(path: Path, content: bytes | str) -> None:
    """Put `content` into the cache if that is possible; without it, only time is lost."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except (OSError, RunFailed):
        return
