"""Tokens: synthetic, from text, from llm.c files; the same in every process; and what is said about wrong files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from perfkit.errors import InputError, RunFailed, Unavailable
from perfkit.workloads import bytepairs, llmc, tokens
from perfkit.workloads.tokens import open_tokens
from tests.support.sweeps import rest

ROOT = Path(__file__).resolve().parents[2]
SENTENCES = "The quick brown fox jumps over the lazy dog. Größe, naïve, 日本語, 🙂!\n\tdef f(x):\n        return x\n"


@pytest.fixture(autouse=True)
def _forget_sources():
    open_tokens.cache_clear()


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(SENTENCES * 60, encoding="utf-8")
    return path


def says(error, kind=InputError):
    return pytest.raises(kind, match=error)


# Synthetic


def test_synthetic_tokens_follow_zipf():
    sample = tokens.ZipfTokens(1000, seed=1).window(0, 200_000)
    assert sample.min() == 0
    assert sample.max() < 1000
    counts = np.bincount(sample, minlength=1000)
    harmonic = (1 / np.arange(1, 1001)).sum()
    for rank in (1, 2, 10, 100):
        assert counts[rank - 1] / len(sample) == pytest.approx(1 / rank / harmonic, rel=0.15)


def test_targets_are_the_next_tokens(gpt2, settings):
    idx, targets = gpt2.batch(settings(), 3)
    assert idx.dtype == targets.dtype == torch.int64
    assert torch.equal(idx.flatten()[1:], targets.flatten()[:-1])


def test_batches_depend_on_step_and_seed(gpt2, settings):
    first = gpt2.batch(settings(), 0)[0]
    assert torch.equal(first, gpt2.batch(settings(), 0)[0])
    assert not torch.equal(first, gpt2.batch(settings(), 1)[0])
    assert not torch.equal(first, gpt2.batch(settings(seed=2), 0)[0])


@pytest.mark.parametrize("data", ["text", rest("synthetic")])
def test_batches_are_the_same_in_every_process(gpt2, settings, data, book, tmp_path):
    data = str(book) if data == "text" else data
    script = (
        "from perfkit.workloads import find, resolve_settings; w = find('gpt2');"
        f"s = resolve_settings(w, preset='tiny', data={data!r});"
        "print([t.flatten().tolist() for t in w.batch(s, 7)])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "1", "PERFKIT_CACHE": str(tmp_path / "own")}
    printed = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    here = [t.flatten().tolist() for t in gpt2.batch(settings(data=data), 7)]
    assert printed.stdout.strip() == str(here)


# Text


def test_text_is_told_in_a_vocabulary_made_from_it(gpt2, settings, book):
    source = open_tokens(str(book), 512, 0)
    assert source.vocabulary.size <= 512
    assert source.tokens.max() < 512
    assert source.vocabulary.decode(source.tokens.tolist()) == bytepairs.END_OF_TEXT + SENTENCES * 60
    assert len(source.tokens) < len((SENTENCES * 60).encode()) / 2
    described = gpt2.describe_data(settings(data=str(book)))
    assert described == source.description
    assert described.startswith("book.txt (")
    size = source.vocabulary.size
    assert described.endswith(f" kB, {len(source.tokens):,} tokens, byte-pair vocabulary of {size} trained from it)")


def test_a_folder_is_read_in_order_without_hidden_files(tmp_path):
    for name in ("b.md", "a/z.txt", "a.py", ".git/c.txt", "image.png", "a/.hidden.txt"):
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name} " * 30)
    source = open_tokens(str(tmp_path / "docs"), 512, 0)
    pieces = source.vocabulary.decode(source.tokens.tolist()).split(bytepairs.END_OF_TEXT)
    assert [piece.split(" ")[2] if piece else "" for piece in pieces] == ["", "a/z.txt", "a.py", "b.md"]
    assert source.description.startswith("docs/ (3 files, ")


def test_the_vocabulary_and_the_tokens_come_from_the_cache(book, cache, monkeypatch):
    first = open_tokens(str(book), 512, 0)
    kept = sorted(path.relative_to(cache).parts[0] for path in cache.rglob("*") if path.is_file())
    assert kept == ["tokens", "vocabularies"]
    open_tokens.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(bytepairs, "train", None)
        patched.setattr(bytepairs.Vocabulary, "encode", None)
        again = open_tokens(str(book), 512, 0)
    assert np.array_equal(first.tokens, again.tokens)
    assert first.description == again.description
    book.write_text("another text " * 400)
    open_tokens.cache_clear()
    assert not np.array_equal(open_tokens(str(book), 512, 0).tokens[:100], first.tokens[:100])


def test_a_damaged_cache_is_made_again(book, cache):
    first = open_tokens(str(book), 512, 0)
    for path in cache.rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    open_tokens.cache_clear()
    assert np.array_equal(open_tokens(str(book), 512, 0).tokens, first.tokens)


def test_a_cache_that_cannot_be_written_costs_only_time(book, cache, monkeypatch):
    monkeypatch.setenv("PERFKIT_CACHE", "/proc/nowhere")
    assert len(open_tokens(str(book), 512, 0).tokens)


@pytest.mark.parametrize(("size", "limit", "entries"), [(1, 512, 512), (61_000, 50257, 2048), (10**9, 50257, 50257)])
def test_the_vocabulary_grows_with_the_text(size, limit, entries):
    assert bytepairs.size_for(size, limit) == entries


@pytest.fixture
def weights_with_vocabulary(tmp_path, book):
    folder = tmp_path / "weights"
    folder.mkdir()
    made = bytepairs.train([book.read_text(encoding="utf-8")], 400)
    made.tokenizer.model.save(str(folder))
    assert sorted(path.name for path in folder.iterdir()) == ["merges.txt", "vocab.json"]
    return folder, made


@pytest.mark.parametrize("form", ["vocab.json", "tokenizer.json", "next to an llm.c checkpoint"])
def test_the_vocabulary_beside_the_weights_is_used(weights_with_vocabulary, book, form):
    folder, made = weights_with_vocabulary
    weights = folder
    if form == "tokenizer.json":
        (folder / "vocab.json").unlink()
        (folder / "tokenizer.json").write_text(made.to_json())
    elif form != "vocab.json":
        weights = folder / "gpt2.bin"
        weights.touch()
    source = open_tokens(str(book), 512, 0, str(weights))
    assert np.array_equal(source.tokens, made.encode([book.read_text(encoding="utf-8")]))
    assert source.description.endswith(f"vocabulary of {made.size} from weights/)")


def test_gpt2_s_way_to_split_text(weights_with_vocabulary, book):
    tokenizers = pytest.importorskip("tokenizers")
    folder, _ = weights_with_vocabulary
    theirs = tokenizers.ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    text = book.read_text(encoding="utf-8")
    assert bytepairs.open_folder(folder).encode([text])[1:].tolist() == theirs.encode(text).ids


# llm.c


def test_llmc_token_file_round_trip(gpt2, settings, tmp_path):
    path = tmp_path / "train.bin"
    written = np.arange(1000) % 512
    llmc.write_tokens(path, written)
    assert path.stat().st_size == 1024 + 2 * 1000
    assert np.array_equal(llmc.read_tokens(path, 512), written)
    s = settings(data=str(path))
    assert gpt2.describe_data(s) == "train.bin (1,000 tokens)"
    idx, targets = gpt2.batch(s, 1)
    assert idx.flatten().tolist() == written[256:512].tolist()
    assert targets.flatten().tolist() == written[257:513].tolist()


def test_raw_int32_tokens_without_a_header(gpt2, settings, tmp_path):
    path = tmp_path / "old.bin"
    (np.arange(300, dtype="<i4") % 512).tofile(path)
    assert gpt2.batch(settings(data=str(path)), 0)[0].flatten().tolist() == [i % 512 for i in range(256)]


def test_the_data_begins_again_when_it_is_used_up(tmp_path):
    path = tmp_path / "train.bin"
    llmc.write_tokens(path, np.arange(100))
    source = open_tokens(str(path), 512, 0)
    assert [source.window(step, 33)[0] for step in range(5)] == [0, 33, 66, 0, 33]


def test_an_unwritable_token_file(tmp_path):
    with says("could not be written", RunFailed):
        llmc.write_tokens(tmp_path / "missing" / "a.bin", np.arange(3))


# Messages about invalid files.


def test_data_that_is_not_there(gpt2, settings):
    with says(r"--data /nowhere: no such file or folder\. Give synthetic, a text file"):
        gpt2.describe_data(settings(data="/nowhere"))


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n", b"text with a \0 in it"])
def test_a_file_that_is_not_text(gpt2, settings, tmp_path, content):
    path = tmp_path / "picture"
    path.write_bytes(content)
    with says("picture is not text: (byte 0 is not UTF-8|it holds a zero byte)"):
        gpt2.describe_data(settings(data=str(path)))


def test_a_folder_without_text(gpt2, settings, tmp_path):
    (tmp_path / "image.png").touch()
    with says("the folder holds no text file"):
        gpt2.describe_data(settings(data=str(tmp_path)))


def test_too_little_text(gpt2, settings, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("too short")
    with says(r"short.txt has \d+ tokens; one batch needs 257.*smaller --batch-size"):
        gpt2.batch(settings(data=str(path)), 0)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda raw: raw[:-2], "is truncated: its header promises 1,424 bytes, it has 1,422"),
        (lambda raw: raw + raw, "is too long"),
        (lambda raw: raw[:500], "is not llm.c token data: it is shorter than the header"),
        (lambda raw: raw[:4] + b"\7" + raw[5:], "version 7 of llm.c's token data is unknown"),
        (lambda raw: np.array([20240326], "<i4").tobytes() + raw[4:], "is an llm.c checkpoint, not token data"),
        (
            lambda raw: b"GGUF" + raw[4:],
            r"is not a token file: it has neither llm.c's header \(20240520\) nor raw int32",
        ),
        (lambda raw: raw[3:], "is not a token file"),
        (lambda raw: raw[:-2] + b"\0\2", "holds the token 512, but the model's vocabulary has 512"),
        (lambda raw: b"", r"has 0 tokens; one batch needs 257"),
    ],
)
def test_wrong_token_files(gpt2, settings, tmp_path, change, error):
    path = tmp_path / "train.bin"
    llmc.write_tokens(path, np.arange(200))
    path.write_bytes(change(path.read_bytes()))
    with says(error):
        gpt2.batch(settings(data=str(path)), 0)


def test_a_vocabulary_larger_than_the_model(weights_with_vocabulary, book):
    folder, made = weights_with_vocabulary
    with says(f"The vocabulary of {made.size} from weights/ is too large: the model has 300 entries"):
        open_tokens(str(book), 300, 0, str(folder))


def test_a_model_too_small_for_bytes(book):
    with says("a vocabulary of 100 cannot hold text: bytes alone need 257"):
        open_tokens(str(book), 100, 0)


def test_a_damaged_vocabulary(weights_with_vocabulary, book):
    folder, _ = weights_with_vocabulary
    (folder / "vocab.json").write_text("{")
    with says("The vocabulary in .*weights is damaged"):
        open_tokens(str(book), 512, 0, str(folder))


def test_the_missing_package_is_named(book, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with says(
        r"package tokenizers, which is not installed\. .*'perfkit\[data\]', or use --data synthetic", Unavailable
    ):
        open_tokens(str(book), 512, 0)
