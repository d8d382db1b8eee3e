"""Weights from Hugging Face folders and llm.c checkpoints, and what is said about files that are neither."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest
import torch

from perfkit.errors import InputError, RunFailed, Unavailable, UsageError
from perfkit.workloads import find, huggingface, llmc, resolve_settings
from perfkit.workloads.checkpoints import load_weights, open_checkpoint
from perfkit.workloads.weights import Checkpoint

TINY = {"layers": 2, "heads": 2, "channels": 64, "vocabulary": 512, "context": 128}


@pytest.fixture(scope="module")
def published():
    """A GPT-2 of Hugging Face's own code, as small as the preset tiny."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=64, vocab_size=512, n_positions=128, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def kept(published, tmp_path_factory):
    """That model saved as Hugging Face saves it."""
    folder = tmp_path_factory.mktemp("kept")
    published.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(kept, tmp_path):
    """A copy of that folder that a test may change."""
    return shutil.copytree(kept, tmp_path / "weights")


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def weights_of(model):
    return {name: p.detach().numpy() for name, p in model.named_parameters()}


@pytest.mark.parametrize("variant", ["explicit", "sdpa"])
def test_logits_and_loss_are_those_of_hugging_face(gpt2, settings, published, kept, variant):
    s = settings(weights=str(kept), variant=variant)
    idx, targets = gpt2.batch(s, 0)
    with torch.no_grad():
        logits, loss = gpt2.build(s)(idx, targets)
        expected = published(idx).logits
    assert (logits - expected).abs().max() < 1e-5
    by_theirs = torch.nn.functional.cross_entropy(expected.view(-1, 512), targets.view(-1))
    assert loss.item() == pytest.approx(by_theirs.item(), rel=1e-6)


def test_pickled_weights_without_the_prefix(gpt2, settings, published, folder):
    (folder / "model.safetensors").unlink()
    state = {name.removeprefix("transformer."): t for name, t in published.state_dict().items()}
    state["h.0.attn.bias"] = torch.ones(1, 1, 128, 128)  # the mask that older versions saved
    torch.save(state, folder / "pytorch_model.bin")
    s = settings(weights=str(folder))
    idx = gpt2.batch(s, 0)[0]
    with torch.no_grad():
        assert (gpt2.build(s)(idx)[0] - published(idx).logits).abs().max() < 1e-5


def test_weights_in_several_files(gpt2, settings, published, folder):
    published.save_pretrained(folder, max_shard_size="100KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    assert (folder / "model.safetensors.index.json").is_file()
    s = settings(weights=str(folder))
    idx = gpt2.batch(s, 0)[0]
    with torch.no_grad():
        assert (gpt2.build(s)(idx)[0] - published(idx).logits).abs().max() < 1e-5


def test_transformers_takes_what_is_exported(gpt2, settings, tmp_path):
    transformers = pytest.importorskip("transformers")
    s = settings(seed=3)
    written = huggingface.export(gpt2, s, tmp_path)
    assert [path.name for path in written] == ["config.json", "model.safetensors"]
    model, idx = gpt2.build(s), gpt2.batch(s, 0)[0]
    with torch.no_grad():
        theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)(idx).logits
        assert (model(idx)[0] - theirs).abs().max() < 1e-5
        assert torch.equal(model(idx)[0], gpt2.build(settings(weights=str(tmp_path)))(idx)[0])
    with pytest.raises(UsageError, match=r"config\.json is already there"):
        huggingface.export(gpt2, s, tmp_path)
    huggingface.export(gpt2, s, tmp_path, overwrite=True)


def test_only_models_that_hugging_face_has_are_exported(tmp_path):
    mlp = find("mlp")
    with pytest.raises(UsageError, match="writes no Hugging Face folder of mlp"):
        huggingface.export(mlp, resolve_settings(mlp), tmp_path)


@pytest.mark.parametrize("bf16", [False, True])
def test_llmc_checkpoint_round_trip(gpt2, settings, tmp_path, bf16):
    model = gpt2.build(settings(seed=3))
    path = tmp_path / "tiny.bin"
    llmc.write_checkpoint(path, TINY, weights_of(model), bf16=bf16)
    again = gpt2.build(settings(weights=str(path)))
    for name, parameter in model.named_parameters():
        expected = parameter.to(torch.bfloat16).float() if bf16 else parameter
        assert torch.equal(dict(again.named_parameters())[name], expected), name


def test_llmc_checkpoint_lies_in_llmc_s_order(gpt2, settings, tmp_path):
    """Read with nothing but the offsets that llm.c's loader uses."""
    weights = weights_of(gpt2.build(settings()))
    path = tmp_path / "tiny.bin"
    sizes = TINY | {"vocabulary": 500}
    weights["transformer.wte.weight"] = weights["transformer.wte.weight"][:500]
    llmc.write_checkpoint(path, sizes, weights)
    header = np.fromfile(path, "<i4", 256)
    assert header[:8].tolist() == [20240326, 3, 128, 500, 2, 2, 64, 512]
    body = np.fromfile(path, "<f4", offset=1024)
    assert np.array_equal(body[: 500 * 64].reshape(500, 64), weights["transformer.wte.weight"])
    assert not body[500 * 64 : 512 * 64].any()
    at = 512 * 64 + 128 * 64 + 2 * 64 + 2 * 64  # wte, wpe, ln_1 weight and bias of two layers
    second = body[at + 192 * 64 : at + 2 * 192 * 64].reshape(192, 64)
    assert np.array_equal(second, weights["transformer.h.1.attn.c_attn.weight"])
    assert np.array_equal(body[-64:], weights["transformer.ln_f.bias"])
    opened = open_checkpoint(path)
    assert dict(opened.dimensions) == sizes
    assert dict(opened.tensors())["transformer.wte.weight"].shape == (500, 64)


def test_llmc_checkpoint_of_version_1_has_no_padding(gpt2, settings, tmp_path):
    weights = weights_of(gpt2.build(settings()))
    header = np.zeros(256, "<i4")
    header[:7] = [20240326, 1, 128, 512, 2, 2, 64]
    arrays = [weights[name].tobytes() for names, _ in llmc.layout(TINY, 512) for name in names]
    path = tmp_path / "old.bin"
    path.write_bytes(header.tobytes() + b"".join(arrays))
    again = weights_of(gpt2.build(settings(weights=str(path))))
    assert all(np.array_equal(again[name], weights[name]) for name in weights)


def test_bf16_rounds_to_nearest_even_as_torch_does(gpt2, settings, tmp_path):
    model = gpt2.build(settings())
    special = [1.00390625, 1.01171875, -1.00390625, 3.4e38, 1e-45, float("inf"), float("-inf"), float("nan")]
    with torch.no_grad():
        model.transformer.ln_f.weight[: len(special)] = torch.tensor(special)
    path = tmp_path / "special.bin"
    llmc.write_checkpoint(path, TINY, weights_of(model), bf16=True)
    read = torch.from_numpy(dict(open_checkpoint(path).tensors())["transformer.ln_f.weight"])
    expected = model.transformer.ln_f.weight.detach().to(torch.bfloat16).float()
    torch.testing.assert_close(read, expected, rtol=0, atol=0, equal_nan=True)


def test_writing_a_checkpoint_is_whole_or_not_at_all(gpt2, settings, tmp_path):
    weights = weights_of(gpt2.build(settings()))
    with pytest.raises(RunFailed, match="could not be written: No such file or directory"):
        llmc.write_checkpoint(tmp_path / "missing" / "a.bin", TINY, weights)
    path = tmp_path / "a.bin"
    path.write_bytes(b"what was there")
    with pytest.raises(KeyError):
        llmc.write_checkpoint(path, TINY, {})
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"what was there"]


# Messages about invalid files.


def says(error, kind=InputError):
    return pytest.raises(kind, match=error)


def test_weights_that_are_not_there(gpt2, settings):
    with says(r"--weights /nowhere/gpt2: no such file or folder\. Give random, a Hugging Face folder"):
        gpt2.build(settings(weights="/nowhere/gpt2"))


def test_another_size_names_both_and_the_preset_that_fits(gpt2, settings, kept, tmp_path):
    with says(r"channels 64, vocabulary 512.*preset gpt2 has layers 12.*channels 768.*Use --preset tiny\.") as caught:
        gpt2.build(settings(preset="gpt2", weights=str(kept)))
    assert caught.value.hint == "Use --preset tiny."
    path = tmp_path / "odd.bin"
    odd = TINY | {"layers": 0 + 1}
    weights = {name: value for name, value in weights_of(gpt2.build(settings())).items() if ".h.1." not in name}
    llmc.write_checkpoint(path, odd, weights)
    with says("layers 1.*No preset has these sizes"):
        gpt2.build(settings(weights=str(path)))


def test_a_folder_without_config(gpt2, settings, tmp_path):
    with says("is not a Hugging Face folder: it has no config.json"):
        gpt2.build(settings(weights=str(tmp_path)))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model_type": "llama"}, "holds a model of type llama, not gpt2"),
        ({"activation_function": "relu"}, "asks for activation_function = relu; perfkit's GPT-2 has gelu_new"),
        ({"layer_norm_epsilon": 1e-6}, "asks for layer_norm_epsilon = 1e-06"),
        ({"tie_word_embeddings": False}, "asks for tie_word_embeddings = False"),
        ({"n_inner": 100}, "asks for n_inner = 100; perfkit's GPT-2 has 4 × n_embd"),
        ({"n_layer": None}, "does not give all of n_layer, n_head, n_embd, vocab_size, n_positions"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_folder_with_another_model(gpt2, settings, folder, changes, error):
    change_config(folder, **changes)
    with says(error):
        gpt2.build(settings(weights=str(folder)))


@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
def test_a_damaged_config(gpt2, settings, folder, text):
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    with says("config.json is damaged"):
        gpt2.build(settings(weights=str(folder)))


def test_a_folder_without_weights(gpt2, settings, folder):
    (folder / "model.safetensors").unlink()
    with says("has a config.json but neither model.safetensors nor pytorch_model.bin"):
        gpt2.build(settings(weights=str(folder)))


def test_damaged_safetensors(gpt2, settings, folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with says("model.safetensors is damaged, or not a safetensors file"):
        gpt2.build(settings(weights=str(folder)))


def test_a_listed_file_is_missing(gpt2, settings, folder):
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"wte.weight": "part-1.safetensors"}}))
    with says("part-1.safetensors"):
        gpt2.build(settings(weights=str(folder)))
    index.write_text("[]")
    with says("index.json is damaged: it lists no weight files"):
        gpt2.build(settings(weights=str(folder)))


class Attack:
    def __reduce__(self):
        return print, ("executed",)


@pytest.mark.parametrize("content", ["garbage", "code", "list"])
def test_pickled_files_that_hold_more_than_weights(gpt2, settings, folder, capsys, content):
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    if content == "garbage":
        path.write_bytes(b"no weights at all")
    else:
        torch.save({"wte.weight": Attack()} if content == "code" else [1, 2], path)
    with says("damaged, or holds more than weights|holds something other than weights by name"):
        gpt2.build(settings(weights=str(folder)))
    assert "executed" not in capsys.readouterr().out


def test_the_missing_package_is_named(gpt2, settings, kept, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with says(r"needs the package safetensors.*pip install 'perfkit\[data\]'", Unavailable):
        gpt2.build(settings(weights=str(kept)))


@pytest.mark.parametrize(
    ("tensors", "error"),
    [
        (
            [("transformer.wte.bias", torch.zeros(1))],
            "holds a weight that the model does not have: transformer.wte.bias",
        ),
        ([("transformer.wte.weight", torch.zeros(3, 4))], r"has shape \(3, 4\) where \(512, 64\) is expected"),
        ([("transformer.wte.weight", torch.zeros(512, 64))], "lacks the weight transformer.wpe.weight"),
    ],
)
def test_wrong_weights(gpt2, settings, tmp_path, tensors, error):
    with says(error):
        load_weights(gpt2.build(settings()), Checkpoint(tmp_path, TINY, lambda: iter(tensors)))


@pytest.fixture
def checkpoint(gpt2, settings, tmp_path):
    path = tmp_path / "tiny.bin"
    llmc.write_checkpoint(path, TINY, weights_of(gpt2.build(settings())))
    return path


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda raw: raw[:-4], r"tiny.bin is truncated: its header promises [\d,]+ bytes, it has [\d,]+"),
        (lambda raw: raw + b"more", "tiny.bin is too long"),
        (lambda raw: raw[:100], "not an llm.c checkpoint: it is shorter than the header"),
        (lambda raw: b"", "not an llm.c checkpoint: it is shorter than the header"),
        (lambda raw: b"GGUF" + raw[4:], "its magic number is 1179993927, not 20240326"),
        (lambda raw: np.array([20240520], "<i4").tobytes() + raw[4:], r"not 20240326\. It is llm.c token data"),
        (lambda raw: raw[:4] + b"\2\0\0\0" + raw[8:], "version 2 of llm.c's checkpoint is unknown"),
        (lambda raw: raw[:16] + b"\xff\xff\xff\xff" + raw[20:], "its header gives impossible dimensions"),
    ],
)
def test_damaged_llmc_checkpoints(gpt2, settings, checkpoint, change, error):
    checkpoint.write_bytes(change(checkpoint.read_bytes()))
    with says(error):
        gpt2.build(settings(weights=str(checkpoint)))


def test_dimensions_in_presets_and_files_have_the_same_names(gpt2):
    sizes = asdict(__import__("sys").modules[type(gpt2).__module__].SIZES["tiny"])
    assert sizes == TINY
