"""GPT-2: shapes, sizes, names, the two forms of attention, FLOP, training and generation."""

from __future__ import annotations

import math
import sys
from fnmatch import fnmatch

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from perfkit.workloads.language import generate
from tests.support.workloads.checking import evaluated


def module(gpt2):
    return sys.modules[type(gpt2).__module__]


def on_meta(gpt2, preset, variant="explicit"):
    content = module(gpt2)
    with torch.device("meta"):
        return content.GPT2(content.SIZES[preset], variant)


def test_shapes_and_loss_at_the_start(gpt2, settings):
    s = settings()
    idx, targets = gpt2.batch(s, 0)
    assert idx.shape == targets.shape == (4, 64)
    logits, loss = gpt2.build(s)(idx, targets)
    assert logits.shape == (4, 64, 512)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(math.log(512), abs=0.05)


def test_inference_has_no_targets_and_no_loss(gpt2, settings):
    s = settings(training=False)
    batch = gpt2.batch(s, 0)
    assert len(batch) == 1
    _, loss = gpt2.build(s)(*batch)
    assert loss is None


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [("gpt2", 124_439_808), ("medium", 354_823_168), ("large", 774_030_080), ("xl", 1_557_611_200)],
)
def test_parameters_of_the_published_sizes(gpt2, preset, parameters):
    assert sum(p.numel() for p in on_meta(gpt2, preset).parameters()) == parameters


def test_names_are_those_of_openai(gpt2):
    model = on_meta(gpt2, "tiny")
    names = {name for name, _ in model.named_parameters()}
    block = {
        f"transformer.h.1.{layer}.{kind}"
        for layer in ("ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
        for kind in ("weight", "bias")
    }
    assert {n for n in names if n.startswith("transformer.h.1.")} == block
    assert {n for n in names if ".h." not in n} == {
        "transformer.wte.weight",
        "transformer.wpe.weight",
        "transformer.ln_f.weight",
        "transformer.ln_f.bias",
    }
    assert set(model.state_dict()) - names == {"lm_head.weight"}


def test_the_head_shares_its_weight_after_building_and_converting(gpt2, settings):
    model = gpt2.build(settings()).to(torch.bfloat16)
    assert model.lm_head.weight is model.transformer.wte.weight
    assert model.lm_head.weight.device.type == "cpu"


def test_passes_and_layers_name_modules_that_exist(gpt2):
    paths = [path for path, _ in on_meta(gpt2, "tiny").named_modules()]
    for patterns in gpt2.passes.values():
        for pattern in patterns:
            assert any(fnmatch(path, pattern) for path in paths), pattern
    assert "transformer.h.1" in paths
    assert gpt2.layers == "transformer.h.*"


def test_start_is_seeded_and_as_published(gpt2, settings):
    first, again, other = (dict(gpt2.build(settings(seed=s)).named_parameters()) for s in (1, 1, 2))
    wte = "transformer.wte.weight"
    assert torch.equal(first[wte], again[wte])
    assert not torch.equal(first[wte], other[wte])
    assert first[wte].std().item() == pytest.approx(0.02, rel=0.05)
    for layer in ("attn", "mlp"):
        projection = first[f"transformer.h.0.{layer}.c_proj.weight"]
        assert projection.std().item() == pytest.approx(0.02 / math.sqrt(2 * 2), rel=0.05)
    assert torch.all(first["transformer.h.0.mlp.c_fc.bias"] == 0)
    assert torch.all(first["transformer.h.0.ln_1.weight"] == 1)


def test_both_forms_of_attention_agree_forward_and_backward(gpt2, settings):
    (logits, _, gradients), (others, _, expected) = (evaluated(gpt2, settings(variant=v)) for v in ("explicit", "sdpa"))
    torch.testing.assert_close(logits, others, rtol=1e-10, atol=1e-12)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-8, atol=1e-12, msg=name)


def test_attention_sees_no_later_token(gpt2, settings):
    model = gpt2.build(settings())
    idx = gpt2.batch(settings(), 0)[0][:1]
    changed = idx.clone()
    changed[0, 40:] = (changed[0, 40:] + 1) % 512
    with torch.no_grad():
        torch.testing.assert_close(model(idx)[0][:, :40], model(changed)[0][:, :40])


def test_recompute_changes_no_gradient(gpt2, settings):
    kept, again = (evaluated(gpt2, settings(recompute=recompute))[2] for recompute in (False, True))
    for name, gradient in kept.items():
        torch.testing.assert_close(gradient, again[name], rtol=0, atol=0)


def test_the_loss_ignores_targets_of_minus_one(gpt2, settings):
    s = settings()
    model = gpt2.build(s)
    idx, targets = gpt2.batch(s, 0)
    targets = targets.clone()
    targets[:, 10:] = -1
    logits, loss = model(idx, targets)
    counted = torch.log_softmax(logits[:, :10], -1).gather(-1, targets[:, :10, None])
    assert loss.item() == pytest.approx(-counted.mean().item(), rel=1e-6)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_the_loss_keeps_its_digits(gpt2, settings, dtype, expected):
    s = settings()
    _, loss = gpt2.build(s).to(dtype)(*gpt2.batch(s, 0))
    assert loss.dtype == expected


def test_training_overfits_one_batch(gpt2, settings):
    s = settings()
    model = gpt2.build(s)
    optimizer = gpt2.optimizer(model, s)
    assert optimizer.defaults["lr"] == 1e-4
    assert optimizer.defaults["weight_decay"] == 0.01
    batch = gpt2.batch(s, 0)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        _, loss = model(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.02


@pytest.mark.parametrize("form", ["default", "foreach", "fused"])
def test_the_form_of_the_optimizer(gpt2, settings, form):
    s = settings(optimizer=form)
    group = gpt2.optimizer(gpt2.build(s), s).param_groups[0]
    assert [name for name in ("foreach", "fused") if group[name]] == ([] if form == "default" else [form])


def counted_flop(gpt2, training):
    model = on_meta(gpt2, "gpt2")
    idx = torch.zeros(4, 64, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter:
        _, loss = model(idx, idx if training else None)
        if training:
            loss.backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("training", [True, False])
def test_flop_agree_with_the_flop_counter(gpt2, settings, training):
    by_hand = sum(gpt2.model_flop(settings(preset="gpt2", training=training)).values())
    assert by_hand == pytest.approx(counted_flop(gpt2, training), rel=0.01)


def test_flop_count_accumulated_batches_but_no_recomputation(gpt2, settings):
    once = gpt2.model_flop(settings())
    assert gpt2.model_flop(settings(recompute=True)) == once
    assert gpt2.model_flop(settings(grad_accumulation=3)) == {part: 3 * flop for part, flop in once.items()}


def test_generation_shows_text_and_nothing_where_there_is_no_vocabulary(gpt2, settings, tmp_path):
    s = settings()
    assert gpt2.demonstrate(gpt2.build(s), s) == ""
    (tmp_path / "a.txt").write_text("one fish, two fish, red fish, blue fish. " * 100)
    s = settings(data=str(tmp_path / "a.txt"))
    prompt, continuation = gpt2.demonstrate(gpt2.build(s), s).removeprefix("continues ").split(" → ")
    assert "one fish" in prompt
    assert len(continuation) > 2


def test_generation_is_greedy_and_stays_inside_the_context(gpt2, settings):
    model = gpt2.build(settings())
    idx = torch.arange(126)[None]
    made = generate(model, idx, 6, 128)
    assert made.shape == (1, 132)
    with torch.no_grad():
        assert made[0, 126] == model(idx)[0][0, -1].argmax()
        assert made[0, 131] == model(made[:, 3:131])[0][0, -1].argmax()


def test_samples_are_tokens(gpt2, settings):
    s = settings(grad_accumulation=2)
    assert gpt2.sample_name == "tokens"
    assert gpt2.samples_per_step(s) == 2 * 4 * 64
