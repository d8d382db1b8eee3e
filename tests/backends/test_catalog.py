"""Kernels in the place of perfkit.functional's functions: the same results as eager, and only while a step runs."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import pytest
import torch

from perfkit import functional
from perfkit.backends import get
from perfkit.workloads import loader
from perfkit.workloads.settings import resolve_settings

CASES = {
    "gpt2": {"preset": "tiny", "batch_size": 2, "sequence_length": 9},
    "llama": {"preset": "tiny", "batch_size": 2, "sequence_length": 9, "dimensions": {"logits": "inside"}},
    "dlrm": {"preset": "small", "batch_size": 5, "dimensions": {"interaction": "cat", "largest": 20}},
    "lora": {"preset": "small", "batch_size": 3, "dimensions": {"width": 24}},
}


def differences(name: str, backend: str) -> dict[str, float]:
    """The largest relative error of loss and gradients of one step against eager in fp64."""
    workload = loader.find(name)
    settings = resolve_settings(workload, **CASES[name])
    torch.manual_seed(0)
    model = workload.build(settings)
    with torch.no_grad():
        for parameter in model.parameters():  # LoRA's matrices start at 0, which would hide errors
            parameter.add_(0.02 * torch.randn_like(parameter))
    exact = copy.deepcopy(model).double()
    program = get(backend).prepare(workload, model, settings)
    reference = get("eager").prepare(workload, exact, settings)
    batch = workload.batch(settings, 0)
    _, loss = program.train_step([batch])
    _, expected = reference.train_step([tuple(t.double() if t.is_floating_point() else t for t in batch)])
    found = {"loss": abs(float(loss) - float(expected)) / float(expected)}
    gradients, exact_gradients = program.gradients(), reference.gradients()
    assert gradients.keys() == exact_gradients.keys()
    for key, gradient in gradients.items():
        scale = exact_gradients[key].abs().max().clamp(min=1e-12)
        found[key] = float((gradient.double() - exact_gradients[key]).abs().max() / scale)
    assert program.warnings() == []
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_eagers(name):
    assert max(differences(name, "kernels").values()) < 2e-4


def test_functions_are_their_own_outside_a_step():
    x = torch.randn(2, 3, 4)
    with functional.replaced({"linear_relu": lambda x, w, b: "other"}):
        assert functional.linear_relu(x, None, None) == "other"
    assert functional.linear_relu(x, torch.eye(4), torch.zeros(4)).shape == x.shape


def test_a_model_that_calls_none_of_them_is_said():
    workload = loader.find("mlp")
    settings = resolve_settings(workload, batch_size=2, dimensions={"layers": 1, "width": 4})
    program = get("kernels").prepare(workload, workload.build(settings), settings)
    program.train_step([workload.batch(settings, 0)])
    assert "calls no function that kernels replace" in program.warnings()[0]


def test_triton_needs_a_gpu_or_its_interpreter():
    reason = get("triton").unavailable(resolve_settings(loader.find("mlp")))
    assert os.environ.get("TRITON_INTERPRET") == "1" or reason


@pytest.mark.slow
def test_triton_kernels_under_the_interpreter():
    pytest.importorskip("triton", reason="triton is not installed")
    code = (
        "from tests.backends.test_catalog import differences\n"
        "for name in ('dlrm', 'lora'):\n    print(max(differences(name, 'triton').values()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert all(float(line) < 2e-4 for line in done.stdout.split())
