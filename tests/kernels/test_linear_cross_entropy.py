"""The head with its cross entropy by chunks: against fp64, as an operator, and in whole models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import perfkit.kernels
from perfkit import functional
from perfkit.content import load_content_module
from perfkit.kernels import check, find

perfkit.kernels.load()
SOURCE = find("linear_cross_entropy_forward").folder / "linear_cross_entropy_torch.py"
forward = torch.ops.perfkit.linear_cross_entropy_forward


@pytest.fixture
def source():
    return load_content_module("kernels", SOURCE)


def loss_of(x, weight, targets, vocabulary):
    return forward(x, weight, targets, vocabulary, -1)[0]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["linear_cross_entropy_forward", "linear_cross_entropy_backward"])
def test_agrees_with_the_reference(name: str, dtype: str) -> None:
    for result in check(name, dtype=dtype):
        result.require()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("rows", [1, 7, 32])
def test_any_number_of_chunks_gives_the_same(source, monkeypatch, rows: int, dtype: str) -> None:
    """70 rows in chunks that do not divide them; sums over the chunks are fp32."""
    monkeypatch.setattr(source, "ROWS", rows)
    monkeypatch.setattr(source, "CHUNK_BYTES", 0)
    for case in ({"N": 70, "C": 16, "V": 515, "Vp": 515}, {"N": 9, "C": 24, "V": 33, "Vp": 40}):
        for result in check("linear_cross_entropy_forward", dtype=dtype, sizes=case):
            result.require()


def test_chunks_hold_a_part_of_the_logits(source) -> None:
    assert source.chunk_rows(32768, 128256, 2) == 4096
    assert source.chunk_rows(100, 128256, 2) == 100
    assert source.chunk_rows(1000, 1 << 24, 4) == 256  # the least


def test_gradients_get_what_comes_from_above_and_compile_without_a_break() -> None:
    x, weight = torch.randn(6, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)
    targets = torch.tensor([1, 2, -1, 10, 0, 3])
    wanted = functional.linear_cross_entropy(x, weight, targets, -1)
    expected = torch.autograd.grad(3 * wanted, (x, weight))
    for function in (loss_of, torch.compile(loss_of, fullgraph=True, backend="aot_eager")):
        loss = function(x, weight, targets, 11)
        torch.testing.assert_close(loss, wanted)
        torch.testing.assert_close(torch.autograd.grad(3 * loss, (x, weight)), expected)


def test_twice_through_one_graph() -> None:
    """The backward does not change the tensors kept for it."""
    x, weight = torch.randn(5, 8, requires_grad=True), torch.randn(7, 8, requires_grad=True)
    loss = loss_of(x, weight, torch.tensor([1, 2, 3, 4, 5]), 7)
    first = torch.autograd.grad(2 * loss, (x, weight), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(2 * loss, (x, weight)), first)


def test_nothing_that_counts() -> None:
    """As PyTorch: the mean of nothing is NaN, and nothing has a gradient."""
    x, weight = torch.randn(3, 8, requires_grad=True), torch.randn(7, 8, requires_grad=True)
    loss = loss_of(x, weight, torch.full((3,), -1), 7)
    assert loss.isnan()
    assert all(not g.any() for g in torch.autograd.grad(loss, (x, weight)))


def test_a_vocabulary_beyond_the_weight_is_refused() -> None:
    with pytest.raises(perfkit.errors.InputError, match="7 rows for 8 words"):
        forward(torch.randn(3, 8), torch.randn(7, 8), torch.zeros(3, dtype=torch.int64), 8, -1)


def test_a_profile_shows_the_work_inside_it(run_cli, tmp_path: Path) -> None:
    """Llama with its logits inside the loss: both backends are right, and each product counts once."""
    done = run_cli(
        ["run", "llama", "--preset", "tiny", "--dim", "logits=inside", "-B", "2", "-T", "16", "--steps", "2",
         "--backend", "eager,kernels", "--out", str(tmp_path / "r")]
    )  # fmt: skip
    assert done.rc == 0, done.stderr
    eager, kernels = json.loads((tmp_path / "r" / "report.json").read_text())["backends"]
    assert kernels["counted_flop"] == pytest.approx(eager["counted_flop"], rel=0.01)
    assert kernels["coverage"]["flop"] == pytest.approx(1.0, abs=0.01)
