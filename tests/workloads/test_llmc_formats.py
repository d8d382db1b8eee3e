"""llm.c's files: what is written is read again, older versions too, and damage is said in a sentence."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.errors import InputError
from perfkit.workloads import llmc
from perfkit.workloads.llmc import DebugState, Example, Tokenizer

SIZES = {"layers": 1, "heads": 1, "channels": 4, "vocabulary": 5, "context": 3}


def header(*words):
    return np.array([*words, *[0] * (256 - len(words))], "<i4").tobytes()


def says(text):
    return pytest.raises(InputError, match=text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("llmc")


@given(st.lists(st.binary(min_size=1, max_size=255), min_size=1, max_size=40), st.integers(0, 39))
def test_tokenizer_round_trip(folder, tokens, end):
    path = folder / "tokenizer.bin"
    llmc.write_tokenizer(path, Tokenizer(tuple(tokens), end))
    assert llmc.read_tokenizer(path) == Tokenizer(tuple(tokens), end)
    assert path.stat().st_size == 1024 + sum(1 + len(token) for token in tokens)


def test_tokenizer_of_both_versions_byte_by_byte(tmp_path):
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(header(20240328, 2, 2, 1) + b"\x02ab\x03end")
    assert llmc.read_tokenizer(path) == Tokenizer((b"ab", b"end"), 1)
    path.write_bytes(header(20240328, 1, 1) + b"\x01a")
    assert llmc.read_tokenizer(path) == Tokenizer((b"a",), 50256)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (header(20240328, 3, 1) + b"\x01a", r"version 3 of llm.c's tokenizer is unknown\. Known: 1 \(without"),
        (header(20240328, 2, 2) + b"\x01a", "it promises 2 tokens, and number 1 is not whole"),
        (header(20240328, 2, 1) + b"\x05a", "number 0 is not whole"),
        (header(20240328, 2, 1) + b"\x00", "number 0 is not whole"),
        (header(20240328, 2, 1) + b"\x01ab", "1 bytes follow its 1 tokens"),
        (header(20240328, 2, -1), "is damaged"),
        (header(20240520, 1, 0), "It is llm.c token data"),
        (b"abc", "shorter than the header"),
    ],
)
def test_damaged_tokenizers(tmp_path, content, error):
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(content)
    with says(error):
        llmc.read_tokenizer(path)


@pytest.mark.parametrize("token", [b"", b"x" * 256])
def test_tokens_that_the_tokenizer_cannot_hold(tmp_path, token):
    with says(r"Token 1 has (0|256) bytes; llm.c's tokenizer holds 1 to 255"):
        llmc.write_tokenizer(tmp_path / "t.bin", Tokenizer((b"a", token), 0))
    assert not list(tmp_path.iterdir())


token_lists = st.lists(st.integers(0, 65534), max_size=30).map(tuple)


@st.composite
def examples(draw):
    completions = tuple(draw(st.lists(token_lists, min_size=1, max_size=5)))
    return Example(draw(token_lists), completions, draw(st.integers(0, len(completions) - 1)))


@given(st.lists(examples(), max_size=8))
def test_evaluation_data_round_trip(folder, some):
    path = folder / "evaluation.bin"
    llmc.write_evaluation(path, some)
    assert llmc.read_evaluation(path) == some


def test_evaluation_data_word_by_word(tmp_path):
    path = tmp_path / "evaluation.bin"
    llmc.write_evaluation(path, [Example((7, 8), ((1,), (2, 3)), 1), Example((9,), ((4,), (5,)), 0)])
    raw = path.read_bytes()
    assert np.frombuffer(raw[:1024], "<i4")[:5].tolist() == [20240522, 1, 2, 26, 0]
    first = [65535, 26, 0, 1, 2, 2, 7, 8, 1, 1, 2, 2, 3]
    second = [65535, 22, 1, 0, 2, 1, 9, 1, 4, 1, 5]
    assert np.frombuffer(raw[1024:], "<u2").tolist() == first + second


@pytest.mark.parametrize("position", [0, 1, 2, 3, 4, 5, 8])
def test_evaluation_data_with_one_wrong_word(tmp_path, position):
    path = tmp_path / "evaluation.bin"
    words = [65535, 26, 0, 1, 2, 2, 7, 8, 1, 1, 2, 2, 3]
    words[position] = 40000
    path.write_bytes(header(20240522, 1, 1, 26) + np.array(words, "<u2").tobytes())
    with says("is damaged at example 0 of 1"):
        llmc.read_evaluation(path)


def test_evaluation_data_cut_short_or_too_long(tmp_path):
    path = tmp_path / "evaluation.bin"
    llmc.write_evaluation(path, [Example((1,), ((2,),), 0), Example((1,), ((2,),), 0)])
    raw = path.read_bytes()
    path.write_bytes(raw[:-2])
    with says("is damaged at example 1 of 2"):
        llmc.read_evaluation(path)
    path.write_bytes(raw + b"ab")
    with says("2 bytes follow its last example"):
        llmc.read_evaluation(path)


@pytest.mark.parametrize(
    "example",
    [Example((65535,), ((1,),), 0), Example((1,), ((1,),), 1), Example((1,) * 40000, ((1,),), 0), Example((1,), (), 0)],
)
def test_examples_that_do_not_fit(tmp_path, example):
    with says("Example 0 does not fit llm.c's evaluation data"):
        llmc.write_evaluation(tmp_path / "e.bin", [example])


def state(batch=2, time=3, seed=0):
    random = np.random.default_rng(seed)
    tokens = random.integers(0, 5, (2, batch, time)).astype("<i4")
    shapes = [(name, shape) for names, shape in llmc.layout(SIZES, 5) for name in names]
    gradients = {name: random.normal(size=shape).astype("<f4") for name, shape in shapes}
    logits = random.normal(size=(batch, time, 5)).astype("<f4")
    return DebugState(*tokens, logits, float(np.float32(1.25)), gradients)


def test_debug_state_round_trip_and_layout(tmp_path):
    path = tmp_path / "state.bin"
    written = state()
    llmc.write_debug_state(path, SIZES, written)
    read = llmc.read_debug_state(path, SIZES)
    assert np.array_equal(read.x, written.x) and np.array_equal(read.y, written.y)
    assert np.array_equal(read.logits, written.logits) and read.loss == written.loss
    assert list(read.gradients) == list(written.gradients)
    assert all(np.array_equal(read.gradients[name], written.gradients[name]) for name in read.gradients)
    raw = path.read_bytes()
    assert np.frombuffer(raw[:1024], "<i4")[:5].tolist() == [20240327, 2, 2, 3, 0]
    at = 1024 + 2 * 24 + 4 * 30
    assert struct.unpack_from("<f", raw, at)[0] == 1.25
    wte = np.frombuffer(raw, "<f4", 128 * 4, at + 4).reshape(128, 4)
    assert np.array_equal(wte[:5], written.gradients["transformer.wte.weight"]) and not wte[5:].any()
    assert np.array_equal(np.frombuffer(raw[-16:], "<f4"), written.gradients["transformer.ln_f.bias"])


def test_debug_state_of_version_1_has_no_padding(tmp_path):
    path = tmp_path / "state.bin"
    old = state()
    parts = [old.x, old.y, old.logits, np.float32(old.loss), *old.gradients.values()]
    path.write_bytes(header(20240327, 1, 2, 3) + b"".join(part.tobytes() for part in parts))
    read = llmc.read_debug_state(path, SIZES)
    assert read.loss == old.loss
    assert all(np.array_equal(read.gradients[name], old.gradients[name]) for name in old.gradients)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda raw: raw[:-4], r"does not fit the model: with its batch of 2 × 3 it would have [\d,]+ bytes"),
        (lambda raw: raw + b"more", "does not fit the model"),
        (lambda raw: header(20240327, 2, 0, 3) + raw[1024:], "its header gives a batch of 0 × 3"),
        (lambda raw: header(20240327, 9, 2, 3) + raw[1024:], "version 9 of llm.c's debug state is unknown"),
        (lambda raw: header(20240326, 3) + raw[1024:], "It is an llm.c checkpoint"),
    ],
)
def test_damaged_debug_states(tmp_path, change, error):
    path = tmp_path / "state.bin"
    llmc.write_debug_state(path, SIZES, state())
    path.write_bytes(change(path.read_bytes()))
    with says(error):
        llmc.read_debug_state(path, SIZES)


def test_files_that_are_not_there(tmp_path):
    for read in (llmc.read_tokenizer, llmc.read_evaluation, lambda path: llmc.read_debug_state(path, SIZES)):
        with says("does not exist. Give "):
            read(tmp_path / "nothing.bin")


def test_tokens_beyond_a_uint16_are_refused(tmp_path):
    with says("holds tokens below 65536; there is one of 65536"):
        llmc.write_tokens(tmp_path / "t.bin", np.array([1, 65536]))
    assert not list(tmp_path.iterdir())
