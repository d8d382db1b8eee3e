"""Llama: sizes, names, the two forms of attention, FLOP, and the exchange of weights with transformers' own model."""

from __future__ import annotations

import json
import sys
from fnmatch import fnmatch

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from perfkit.errors import InputError, UsageError
from perfkit.workloads import find, resolve_settings
from perfkit.workloads.huggingface import write_folder
from tests.support.workloads.checking import evaluated


@pytest.fixture(scope="session")
def llama():
    return find("llama")


@pytest.fixture(scope="session")
def settings(llama):
    """`settings(**options)` resolves options for Llama; preset tiny unless given."""

    def resolve(**options):
        return resolve_settings(llama, **{"preset": "tiny", **options})

    return resolve


def on_meta(llama, preset, variant="explicit"):
    content = sys.modules[type(llama).__module__]
    with torch.device("meta"):
        return content.Llama(content.SIZES[preset], variant, False, 64)


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [("1b", 1_235_814_400), ("3b", 3_212_749_824), ("8b", 8_030_261_248), ("tinyllama", 1_100_048_384)],
)
def test_parameters_of_the_published_sizes(llama, preset, parameters):
    assert sum(p.numel() for p in on_meta(llama, preset).parameters()) == parameters


def test_passes_and_layers_name_modules_that_exist(llama):
    paths = [path for path, _ in on_meta(llama, "tiny").named_modules()]
    assert all(any(fnmatch(path, p) for path in paths) for patterns in llama.passes.values() for p in patterns)
    assert "model.layers.1" in paths


def test_inference_has_no_targets_and_no_loss(llama, settings):
    s = settings(training=False)
    logits, loss = llama.build(s)(*llama.batch(s, 0))
    assert logits.shape == (4, 64, 512)
    assert loss is None


def test_start_is_seeded(llama, settings):
    first, again, other = (dict(llama.build(settings(seed=s)).named_parameters()) for s in (1, 1, 2))
    name = "model.layers.1.mlp.down_proj.weight"
    assert torch.equal(first[name], again[name])
    assert not torch.equal(first[name], other[name])
    assert first[name].std().item() == pytest.approx(0.01, rel=0.05)
    assert torch.all(first["model.norm.weight"] == 1)


@pytest.mark.parametrize("head", ["tied", "untied"])
def test_the_head_has_a_weight_of_its_own_unless_tied(llama, settings, head):
    model = llama.build(settings(dimensions={"head": head})).to(torch.bfloat16)
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == (head == "tied")


def test_both_forms_of_attention_agree_forward_and_backward(llama, settings):
    (logits, _, gradients), (others, _, expected) = (
        evaluated(llama, settings(variant=variant)) for variant in llama.variants
    )
    torch.testing.assert_close(logits, others, rtol=1e-10, atol=1e-12)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-8, atol=1e-12, msg=name)


def test_attention_sees_no_later_token_and_positions_matter(llama, settings):
    model = llama.build(settings())
    idx = llama.batch(settings(), 0)[0][:1]
    changed = idx.clone()
    changed[0, 40:] = (changed[0, 40:] + 1) % 512
    swapped = idx[:, [1, 0, *range(2, 64)]]
    with torch.no_grad():
        torch.testing.assert_close(model(idx)[0][:, :40], model(changed)[0][:, :40])
        assert (model(idx)[0][:, 40:] - model(swapped)[0][:, 40:]).abs().max() > 1e-6


def test_recompute_changes_no_gradient(llama, settings):
    kept, again = (evaluated(llama, settings(recompute=recompute))[2] for recompute in (False, True))
    for name, gradient in kept.items():
        torch.testing.assert_close(gradient, again[name], rtol=0, atol=0)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("preset", ["160m", "1b"])
def test_flop_agree_with_the_flop_counter(llama, settings, preset, training):
    model = on_meta(llama, preset)
    idx = torch.zeros(4, 64, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter:
        _, loss = model(idx, idx if training else None)
        if training:
            loss.backward()
    by_hand = sum(llama.model_flop(settings(preset=preset, training=training)).values())
    assert by_hand == pytest.approx(counter.get_total_flops(), rel=0.01)


@pytest.mark.parametrize(
    ("dimensions", "error"),
    [
        ({"heads": 3}, "64 channels do not divide into 3 heads"),
        ({"kv_heads": 3}, "4 heads do not divide into 3 heads of keys and values"),
        ({"heads": 64, "kv_heads": 2}, "1 channels of a head do not divide into 2 pairs"),
    ],
)
def test_sizes_that_do_not_fit_together(llama, settings, dimensions, error):
    with pytest.raises(UsageError, match=error):
        llama.build(settings(dimensions=dimensions))


# ---- weights, against transformers' own model


FREQUENCIES = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
STRETCHED = {"rope_theta": 500000.0, "rope_factor": 8.0, "head": "tied"}


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


def theirs(transformers, folder):
    """The model in `folder` by transformers, in fp64 throughout: its norm rounds to fp32 otherwise."""

    def norm(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa").double()
    for module in model.modules():
        if type(module).__name__ == "LlamaRMSNorm":
            module.forward = norm.__get__(module)
    return model


def check_equal(transformers, llama, s, folder):
    """Logits, loss and every gradient of both models, from the same folder, to 1e-10."""
    model, other = llama.build(s).double(), theirs(transformers, folder)
    logits, loss, gradients = evaluated(llama, s, model)
    idx, targets = llama.batch(s, 0)
    expected = other(idx).logits
    their_loss = F.cross_entropy(expected.view(-1, 512), targets.view(-1))
    their_loss.backward()
    assert (logits - expected).abs().max() < 1e-10
    assert abs(loss.item() - their_loss.item()) < 1e-10
    found = {name: p.grad for name, p in other.named_parameters()}
    assert found.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert (gradient - found[name]).abs().max() < 1e-10, name


def saved_by_transformers(transformers, folder, stretched):
    torch.manual_seed(0)
    frequencies = {"rope_theta": 10000.0, "rope_type": "default"}
    if stretched:
        frequencies = {**FREQUENCIES, "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 8192}
    config = transformers.LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=64, intermediate_size=192,
        vocab_size=512, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=stretched,
        rope_parameters=frequencies,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


@pytest.mark.parametrize("stretched", [False, True], ids=["plain", "llama3, tied"])
@pytest.mark.parametrize("variant", ["explicit", "sdpa"])
def test_a_folder_of_transformers_gives_the_same(llama, settings, transformers, tmp_path, variant, stretched):
    saved_by_transformers(transformers, tmp_path, stretched)
    dimensions = STRETCHED if stretched else {}
    check_equal(transformers, llama, settings(weights=str(tmp_path), variant=variant, dimensions=dimensions), tmp_path)


@pytest.mark.parametrize("stretched", [False, True], ids=["plain", "llama3, tied"])
def test_transformers_takes_what_is_written(llama, settings, transformers, tmp_path, stretched):
    dimensions = STRETCHED if stretched else {}
    s = settings(dimensions=dimensions, seed=5)
    model = llama.build(s)
    written = write_folder(tmp_path, "llama", llama.dimensions(s), dict(model.named_parameters()))
    assert [path.name for path in written] == ["config.json", "model.safetensors"]
    again = settings(weights=str(tmp_path), dimensions=dimensions)
    for name, parameter in llama.build(again).named_parameters():
        assert torch.equal(parameter, dict(model.named_parameters())[name]), name
    check_equal(transformers, llama, again, tmp_path)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model_type": "gpt2"}, "holds a model of type gpt2, not llama"),
        ({"hidden_act": "gelu"}, "asks for hidden_act = gelu; perfkit's Llama has silu"),
        ({"head_dim": 32}, "asks for head_dim = 32"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "frequencies of type yarn"),
        ({"num_hidden_layers": 3}, r"layers 3.*preset tiny has layers 2"),
        ({"tie_word_embeddings": True}, "head tied.*but the preset tiny has.*head untied"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_folder_with_another_model(llama, settings, tmp_path, changes, error):
    s = settings()
    write_folder(tmp_path, "llama", llama.dimensions(s), {})
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InputError, match=error):
        llama.build(settings(weights=str(tmp_path)))


def test_a_file_is_no_llama(llama, settings, tmp_path):
    path = tmp_path / "gpt2.bin"
    path.write_bytes(b"")
    with pytest.raises(InputError, match="is a file, and no file holds a llama"):
        llama.build(settings(weights=str(path)))
