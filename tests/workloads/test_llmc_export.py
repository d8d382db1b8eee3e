"""The output of `perfkit export gpt2 --llmc`, read by a C program that knows only the documented layout."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from perfkit.errors import InputError, UsageError
from perfkit.workloads import find, llmc
from perfkit.workloads.llmc.export import export

SMALL = {"layers": 2, "heads": 2, "channels": 12, "vocabulary": 301, "context": 11}
WEIGHTS, BF16, STATE, TOKENIZER, TOKENS = (
    "gpt2_small.bin", "gpt2_small_bf16.bin", "gpt2_small_debug_state.bin", "gpt2_tokenizer.bin", "tokens.bin",
)  # fmt: skip


@pytest.fixture
def small(gpt2, monkeypatch):
    """GPT-2 with a preset whose vocabulary is not a multiple of 128, small enough for central differences."""
    module = sys.modules[type(gpt2).__module__]
    monkeypatch.setitem(module.SIZES, "small", module.Sizes(**SMALL))
    monkeypatch.setattr(type(gpt2), "presets", {"small": SMALL | {"batch_size": 2, "sequence_length": 7}})
    return gpt2


@pytest.fixture
def exported(small, settings, tmp_path):
    done = export(small, settings(preset="small"), tmp_path)
    return tmp_path, done


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """The compiled C program."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    program = tmp_path_factory.mktemp("reader") / "llmc_reader"
    source = Path(__file__).with_name("llmc_reader.c")
    command = [compiler, "-std=gnu11", "-O2", "-Wall", "-Werror", str(source), "-o", str(program), "-lm"]
    subprocess.run(command, check=True)
    return program


def test_a_c_program_finds_logits_loss_and_all_16_gradients_right(exported, reader):
    folder, done = exported
    ran = subprocess.run([reader, folder / WEIGHTS, folder / STATE], capture_output=True, text=True, timeout=120)
    lines = ran.stdout.splitlines()
    assert ran.returncode == 0, ran.stdout
    assert len(lines) == 18 and all(line.startswith("OK ") for line in lines)
    assert [path.name for path in done.files] == [WEIGHTS, BF16, STATE, TOKENS]


@pytest.mark.parametrize("tensor", [0, 4, 15])
def test_the_c_program_notices_a_wrong_gradient(exported, reader, tensor):
    """The check is able to fail: the largest gradients of one tensor are changed."""
    folder, _ = exported
    state = llmc.read_debug_state(folder / STATE, SMALL)
    gradients = {name: np.array(values) for name, values in state.gradients.items()}
    for name in llmc.layout(SMALL, 301)[tensor][0]:
        gradients[name] *= 1.01
    wrong = llmc.DebugState(state.x, state.y, state.logits, state.loss, gradients)
    llmc.write_debug_state(folder / "wrong.bin", SMALL, wrong)
    ran = subprocess.run([reader, folder / WEIGHTS, folder / "wrong.bin"], capture_output=True, text=True)
    assert ran.returncode == 1
    assert [line for line in ran.stdout.splitlines() if line.startswith("NOT OK")] == [
        line for line in ran.stdout.splitlines() if f"gradient {tensor}:" in line
    ]


def test_what_is_exported_is_the_model(small, settings, exported):
    folder, done = exported
    s = settings(preset="small")
    model = small.build(s)
    again = small.build(settings(preset="small", weights=str(folder / WEIGHTS)))
    for name, parameter in model.named_parameters():
        assert torch.equal(dict(again.named_parameters())[name], parameter), name
    idx, targets = small.batch(s, 0)
    logits, loss = model(idx, targets)
    loss.backward()
    state = llmc.read_debug_state(folder / STATE, SMALL)
    assert state.loss == done.loss == loss.item()
    assert np.array_equal(state.x, idx) and np.array_equal(state.y, targets)
    assert np.array_equal(state.logits, logits.detach())
    assert all(np.array_equal(state.gradients[name], p.grad) for name, p in model.named_parameters())
    tokens = llmc.read_tokens(folder / TOKENS, 301)
    assert np.array_equal(tokens[:-1].reshape(2, 7), idx)


def test_files_that_are_there_are_replaced_only_when_asked(small, settings, exported):
    folder, _ = exported
    before = (folder / WEIGHTS).read_bytes()
    with pytest.raises(UsageError, match=r"gpt2_small\.bin is already there\. --overwrite replaces it"):
        export(small, settings(preset="small", seed=2), folder)
    assert (folder / WEIGHTS).read_bytes() == before
    export(small, settings(preset="small", seed=2), folder, overwrite=True)
    assert (folder / WEIGHTS).read_bytes() != before
    (folder / TOKENS).write_text("my own notes")
    with pytest.raises(UsageError, match=r"not a file of llm.c, so it is not overwritten"):
        export(small, settings(preset="small"), folder, overwrite=True)
    assert (folder / TOKENS).read_text() == "my own notes"


def byte_vocabulary(folder, end="<|endoftext|>"):
    """The bytes in GPT-2's written form, one pair, and the end-of-text token, as a folder that tokenizers reads."""
    from perfkit.workloads.llmc.tokenizer import byte_of

    folder.mkdir()
    texts = [*sorted(byte_of(), key=byte_of().get), "Ġa", end]
    (folder / "vocab.json").write_text(json.dumps({text: i for i, text in enumerate(texts)}), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\nĠ a\n", encoding="utf-8")
    return folder


def test_the_tokenizer_of_a_folder(small, settings, tmp_path):
    pytest.importorskip("tokenizers")
    folder = byte_vocabulary(tmp_path / "vocabulary")
    done = export(small, settings(preset="small"), tmp_path / "out", tokenizer=folder)
    assert not done.notes
    read = llmc.read_tokenizer(tmp_path / "out" / TOKENIZER)
    assert read.tokens == (*(bytes([i]) for i in range(256)), b" a", b"<|endoftext|>")
    assert read.end_of_text == 257
    assert read.decode([256, 0xC3, 0xBC, 999, 257]) == " aü<|endoftext|>".encode()


def test_the_tokenizer_of_the_text_and_its_tokens(small, settings, tmp_path):
    pytest.importorskip("tokenizers")
    text = tmp_path / "text.txt"
    text.write_text("die Katze und der Käse\n" * 40, encoding="utf-8")
    export(small, settings(preset="small", data=str(text)), tmp_path / "out")
    tokenizer = llmc.read_tokenizer(tmp_path / "out" / TOKENIZER)
    tokens = llmc.read_tokens(tmp_path / "out" / TOKENS, 301)
    assert tokenizer.decode(tokens.tolist()) == b"<|endoftext|>" + text.read_bytes()


def test_vocabularies_that_do_not_fit(small, settings, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    s = settings(preset="small")
    with pytest.raises(InputError, match="that folder has no vocabulary"):
        export(small, s, tmp_path / "a", tokenizer=tmp_path)
    with pytest.raises(InputError, match=r"has no token <\|endoftext\|>"):
        export(small, s, tmp_path / "b", tokenizer=byte_vocabulary(tmp_path / "endless", end="end"))
    words = tmp_path / "words"
    words.mkdir()
    model = tokenizers.models.WordLevel({"<|endoftext|>": 0, "naïve▁word": 1}, unk_token="<|endoftext|>")
    tokenizers.Tokenizer(model).save(str(words / "tokenizer.json"))
    with pytest.raises(InputError, match="is not a byte-level one as GPT-2's is: token 1"):
        export(small, s, tmp_path / "c", tokenizer=words)
    assert not list(tmp_path.glob("[abc]/*.bin"))


def test_only_gpt2_can_be_exported(tmp_path):
    other = find(str(Path(__file__).resolve().parents[2] / "examples" / "my_model.py"))
    from perfkit.workloads import resolve_settings

    with pytest.raises(UsageError, match=r"is not a GPT-2, and llm.c's files hold nothing else"):
        export(other, resolve_settings(other), tmp_path)


def test_the_command(run_cli, tmp_path):
    done = run_cli(["export", "gpt2", "--preset", "tiny", "--llmc", tmp_path / "out", "-B", "1", "-T", "8"])
    assert done.rc == 0, done.stderr
    assert "gpt2_tiny_debug_state.bin" in done.stdout and "Loss of the batch: " in done.stdout
    assert "The tokenizer is left out: --tokenizer FOLDER" in done.stdout
    assert run_cli(["export", "gpt2", "--preset", "tiny", "--llmc", tmp_path / "out"]).rc == 2
