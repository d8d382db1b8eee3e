"""The MLP and LoRA: what they compute by definition, and their matrix FLOP as torch counts them."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from perfkit.functional import ACTIVATIONS, linear_relu, multiply_add_activation
from perfkit.workloads import loader
from perfkit.workloads.settings import resolve_settings

SMALL = {"mlp": {"layers": 3, "width": 24}, "lora": {"layers": 3, "width": 24, "rank": 5}}


def made(name, **given):
    workload = loader.find(name)
    settings = resolve_settings(workload, batch_size=6, dimensions=SMALL[name], **given)
    return workload, settings, workload.build(settings)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("training", [True, False])
def test_matrix_flop_are_those_that_torch_counts(name, training):
    workload, settings, model = made(name, training=training)
    with FlopCounterMode(display=False) as counter:
        loss = model(*workload.batch(settings, 0))[1]
        if training:
            loss.backward()
    assert sum(workload.model_flop(settings).values()) == counter.get_total_flops()


@pytest.mark.parametrize("name", SMALL)
def test_they_learn(name):
    workload, settings, model = made(name)
    optimizer = workload.optimizer(model, settings)
    losses = []
    for step in range(30):
        loss = model(*workload.batch(settings, step % 3))[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


def test_lora_starts_as_the_frozen_layer_and_only_its_narrow_matrices_learn():
    workload, settings, model = made("lora")
    layer = model.layers[0]
    x = workload.batch(settings, 0)[0]
    torch.testing.assert_close(layer(x), torch.relu(x @ layer.weight.T + layer.bias))
    with torch.no_grad():
        layer.b.normal_()
    expected = torch.relu(x @ layer.weight.T + 0.5 * x @ layer.a.T @ layer.b.T + layer.bias)
    torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-5)
    assert {name.rsplit(".", 1)[1] for name, p in model.named_parameters() if p.requires_grad} == {"a", "b"}
    unfused = made("lora", variant="unfused")[2]
    unfused.load_state_dict(model.state_dict())
    torch.testing.assert_close(unfused(x)[0], model(x)[0])


def test_functions_that_kernels_replace():
    x, z, bias = torch.randn(4, 6), torch.randn(4, 6), torch.randn(6)
    for name, activation in ACTIVATIONS.items():
        torch.testing.assert_close(multiply_add_activation(x, z, 0.3, bias, name), activation(x + 0.3 * z + bias))
    weight = torch.randn(6, 6)
    torch.testing.assert_close(linear_relu(x, weight, bias), (x @ weight.T + bias).clamp(min=0))
