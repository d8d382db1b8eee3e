"""The workload hf: any causal language model of transformers, from its config.json or from saved weights."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from perfkit import backends
from perfkit.errors import InputError, PerfkitError, Unavailable, UsageError
from perfkit.run.worker import Worker
from perfkit.run_folder import Settings
from perfkit.workloads import find, resolve_settings
from tests.support.workloads.checking import verdict

pytest.importorskip("transformers")

LLAMA = {
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
    "intermediate_size": 64, "vocab_size": 128, "max_position_embeddings": 32,
}  # fmt: skip
GPT2 = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 128, "n_positions": 32}
KINDS: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,  # whose dropout is 0.1 unless a config says otherwise
    "llama": LLAMA,
    "qwen2": LLAMA,
    "mistral": LLAMA | {"attention_dropout": 0.1},
    "gemma": LLAMA | {"head_dim": 8, "num_key_value_heads": 1},
}


@pytest.fixture
def folder(tmp_path):
    """`folder(kind, **entries)` holds the config.json of a small model of that kind."""

    def write(kind: str, **entries: Any) -> Path:
        path = tmp_path / kind
        path.mkdir()
        (path / "config.json").write_text(json.dumps({"model_type": kind} | KINDS[kind] | entries), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="module")
def hf():
    return find("hf")


def small(hf, **options: Any):
    paths = {name: str(options[name]) for name in ("config", "weights") if name in options}
    return resolve_settings(hf, **{"batch_size": 2, "sequence_length": 16} | options | paths)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_correct(kind, hf, folder, tmp_path):
    settings = small(hf, config=folder(kind))
    found, first = verdict(settings, tmp_path)
    assert found.ok, found.problems
    assert {"outputs", "loss"} <= {check.name for check in found.checks}
    assert len({round(loss, 5) for loss in first["found"].losses}) == 3  # other data, and it learns


@pytest.mark.parametrize("kind", KINDS)
def test_the_facts_of_each_kind(kind, hf, folder):
    settings = small(hf, config=folder(kind), variant="eager", grad_accumulation=2)
    work = find("hf")
    model = work.build(settings)
    batch = work.batch(settings, 0)
    with FlopCounterMode(display=False) as counter:
        model(**batch).loss.backward()
    assert sum(work.model_flop(settings).values()) == 2 * counter.get_total_flops()
    assert work.layers == ("transformer.h.*" if kind == "gpt2" else "model.layers.*")
    assert work.title(settings) == f"hf {kind} ({kind})"
    assert work.samples_per_step(settings) == 2 * 16 * 2
    assert batch["input_ids"].shape == (2, 16) and batch["input_ids"].max() < 128
    assert torch.equal(batch["input_ids"], batch["labels"])
    assert not torch.equal(batch["input_ids"], work.batch(settings, 1)["input_ids"])


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_inference_and_attention_written_out(kind, hf, folder, tmp_path):
    settings = small(hf, config=folder(kind), training=False, variant="eager")
    found, _ = verdict(settings, tmp_path)
    assert found.ok and [check.name for check in found.checks] == ["outputs"]


def test_in_bf16_the_frequencies_of_rotary_embeddings_stay_as_they_were(hf, folder, tmp_path):
    settings = small(hf, config=folder("llama"), dtype="bf16")
    model = hf.build(settings)
    exact = model.model.rotary_emb.inv_freq.clone()
    model = model.to(torch.bfloat16)
    assert model.lm_head.weight.dtype == torch.bfloat16
    assert torch.equal(model.model.rotary_emb.inv_freq, exact)
    assert model.to(torch.float64).model.rotary_emb.inv_freq.dtype == torch.float64
    found, _ = verdict(settings, tmp_path)
    assert found.ok, found.problems


def test_saved_weights_are_those_of_the_model(hf, folder, tmp_path):
    settings = small(hf, config=folder("llama"), seed=5)
    saved = hf.build(settings)
    saved.save_pretrained(tmp_path / "saved")
    again = small(hf, weights=tmp_path / "saved")
    loaded = hf.build(again)
    assert hf.title(again) == "hf llama (saved)"
    assert all(torch.equal(a, b) for a, b in zip(saved.parameters(), loaded.parameters(), strict=True))
    assert next(loaded.parameters()).dtype == torch.float32
    found, _ = verdict(again, tmp_path)
    assert found.ok, found.problems


def test_recomputing_changes_nothing_but_what_is_kept(hf, folder, tmp_path):
    found, _ = verdict(small(hf, config=folder("llama"), recompute=True, optimizer="fused"), tmp_path)
    assert found.ok, found.problems


@pytest.mark.full
def test_thunder_s_refusal_is_a_sentence_with_the_module(hf, folder, tmp_path):
    """Once Thunder can trace transformers' models, it must be right."""
    if missing := backends.get("thunder").unavailable():
        pytest.skip(missing)
    worker = Worker(lambda text: None)
    settings = small(hf, config=folder("llama", num_hidden_layers=1), training=False)
    worker.prepare(settings, "thunder")
    refusal = None
    try:
        worker.program.forward(hf.batch(settings, 0))
    except PerfkitError as error:
        refusal = error
    if refusal is None:
        assert verdict(settings, tmp_path, "thunder")[0].ok
        return
    assert re.match(
        r"Thunder could not trace the model, in the module model: AssertionError: .{20,300}\.$", str(refusal)
    )
    assert "PseudoInst" not in str(refusal)
    assert "PseudoInst" in str(refusal.__cause__)  # the log has it whole


@pytest.mark.slow
@pytest.mark.full
def test_a_compiled_model_infers_right(hf, folder, tmp_path):
    _compiled(small(hf, config=folder("llama", num_hidden_layers=1), training=False), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_compile_is_correct_with_each_kind(kind, hf, folder, tmp_path):
    _compiled(small(hf, config=folder(kind)), tmp_path)


def _compiled(settings: Settings, tmp_path: Path) -> None:
    if missing := backends.get("compile").unavailable():
        pytest.skip(missing)
    torch._dynamo.reset()
    found, _ = verdict(settings, tmp_path, "compile")
    assert found.ok, found.problems


def test_what_is_no_model(hf, folder, tmp_path, monkeypatch):
    def fails(kind: type[PerfkitError], text: str, **options: Any) -> None:
        with pytest.raises(kind, match=text):
            small(hf, **options)

    fails(UsageError, "none was named. Give --config FOLDER .* or --weights FOLDER")
    fails(InputError, "nowhere/config.json is missing", config=tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{")
    fails(InputError, "config.json is damaged: it is not JSON", config=tmp_path)
    (tmp_path / "config.json").write_text("{}")
    fails(InputError, "config.json names no model_type", config=tmp_path)
    with pytest.raises(UsageError, match="gpt2 does not take --config"):
        resolve_settings(find("gpt2"), config="here")
    config = folder("gpt2")
    with pytest.raises(UsageError, match="--sequence-length 64 is more than the 32 positions of the model"):
        hf.build(small(hf, config=config, sequence_length=64))
    (tmp_path / "config.json").write_text('{"model_type": "never-heard-of"}')
    with pytest.raises(InputError, match=r"transformers does not accept .*: ValueError: "):
        hf.build(small(hf, config=tmp_path))
    with pytest.raises(InputError, match="cannot make this model: OSError: "):
        hf.build(small(hf, weights=config))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"needs the package transformers, .* pip install 'perfkit.data.'"):
        hf.check(Settings(workload="hf", preset="small", batch_size=2, config=str(config)))
