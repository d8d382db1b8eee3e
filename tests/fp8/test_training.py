"""Training in fp8: which layers it converts, what it refuses, and losses beside bf16's and fp32's."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.fp8_beside import Side, apart
from perfkit import backends
from perfkit.correctness import judge
from perfkit.errors import UsageError
from perfkit.fp8 import chosen, convert, described
from perfkit.fp8.linear import Linear
from perfkit.run.worker import Worker
from perfkit.workloads import find, resolve_settings

GPT2 = ("c_attn", "c_proj", "c_fc")
LLAMA = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def settings_of(workload: str, **given: Any) -> Any:
    return resolve_settings(find(workload), **{"preset": "tiny", "dtype": "fp8"} | given)


@pytest.mark.parametrize(("workload", "layers", "each"), [("gpt2", GPT2, 4), ("llama", LLAMA, 7)])
def test_the_linear_layers_of_blocks_multiply_fp8_and_no_others(
    workload: str, layers: tuple[str, ...], each: int
) -> None:
    found = find(workload)
    model = found.build(settings_of(workload)).bfloat16()
    names = list(dict(model.named_parameters()))
    convert(model, found.layers)
    eights = [name for name, module in model.named_modules() if type(module) is Linear]
    assert len(eights) == 2 * each and {name.rpartition(".")[2] for name in eights} == set(layers)
    assert list(dict(model.named_parameters())) == names
    (text, emulated) = described(model, found.layers, "cpu")
    assert f"{2 * each} linear layers ({', '.join(layers)})" in text and "e4m3" in text and "e5m2" in text
    assert "emulated" in emulated and described(model, found.layers, "cuda") == [text]


@pytest.mark.parametrize(
    ("workload", "given", "said"),
    [
        ("gpt2", {"training": False}, "is of a training step"),
        ("gpt2", {"batch_size": 1, "sequence_length": 24}, "1 × 24 = 24 does not"),
        ("gpt2", {"ranks": 2}, "in one process"),
        ("dlrm", {"preset": None}, "names no repeated layers"),
    ],
)
def test_what_cannot_train_in_fp8_is_a_sentence(workload: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings_of(workload, **given)
    assert said in caught.value.message and caught.value.hint


def test_layers_of_odd_widths_are_named_or_refused() -> None:
    model = torch.nn.Module()
    model.h = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.Linear(16, 32)) for _ in "12")
    assert described(model, "h.*", "cuda")[1].startswith("2 linear layers stay in bf16")
    with pytest.raises(UsageError, match="widths that divide by 16"):
        convert(torch.nn.Sequential(torch.nn.Linear(16, 16)), "h.*")


def test_layers_that_are_linear_themselves_count() -> None:
    model = torch.nn.Module()
    model.h = torch.nn.ModuleList([torch.nn.Linear(16, 16)])
    assert chosen(model, "h.*") == (["h.0"], [])


def test_a_subclass_of_a_linear_layer_stays_what_it_is() -> None:
    """As the one in PyTorch's MultiheadAttention, whose weight is used without it."""
    model = torch.nn.Module()
    model.h = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.MultiheadAttention(16, 2))])
    convert(model, "h.*")
    assert chosen(model, "h.*") == (["h.0.0"], [])


def test_thunder_alone_says_why_not() -> None:
    reason = backends.get("thunder").unavailable(settings_of("gpt2"))
    assert reason and "thunder-llmc" in reason and "--dtype bf16" in reason
    assert backends.get("llmc").unavailable(settings_of("gpt2")) is None


@pytest.mark.parametrize("backend", ["eager", "llmc"])
@pytest.mark.parametrize("workload", ["gpt2", "llama"])
def test_fifty_steps_beside_bf16_and_fp32(workload: str, backend: str) -> None:
    given = {"batch_size": 2, "sequence_length": 32}
    curves = {}
    for dtype in ("fp32", "bf16", "fp8"):
        side = Side(settings_of(workload, dtype=dtype, **given), backend)
        curves[dtype] = [float(side.step()) for _ in range(50)]
    fall = curves["fp32"][0] - curves["fp32"][-1]
    assert fall > 0
    assert apart(curves["fp8"], curves["fp32"]) < 0.01
    assert abs(statistics.fmean(curves["fp8"][-10:]) - statistics.fmean(curves["bf16"][-10:])) < 0.005


def first_steps(settings: Any, backend: str, folder: Path, write: bool = False) -> Any:
    worker = Worker(lambda text: None)
    facts, precision = worker.prepare(settings, backend, reference=write)
    return facts, precision, worker.first_steps(10, str(folder), write)["found"]


@pytest.mark.parametrize("workload", ["gpt2", "llama"])
def test_a_run_is_right_by_its_own_bounds(workload: str, tmp_path: Path) -> None:
    settings = settings_of(workload, sequence_length=64)
    facts, precision, reference = first_steps(settings, "eager", tmp_path, write=True)
    assert any("e4m3" in note for note in facts.notes)
    _, _, eager = first_steps(settings, "eager", tmp_path)
    verdict = judge("fp8", precision, eager, eager, reference.losses, facts.samples_per_step)
    assert verdict.ok
