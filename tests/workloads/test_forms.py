"""Batches and results of every form come out in one."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfkit.errors import InputError
from perfkit.workloads import batch_formats

LOGITS, LOSS = torch.ones(2, 3), torch.tensor(0.5, requires_grad=True)
Named = namedtuple("Named", ["loss", "scores"])


@dataclass
class Result:
    loss: Any
    logits: Any


@pytest.mark.parametrize(
    "result",
    [
        (LOGITS, LOSS),
        (LOSS, LOGITS),
        [LOSS, LOGITS],
        {"loss": LOSS, "logits": LOGITS},
        Named(LOSS, LOGITS),
        Result(LOSS, LOGITS),
        SimpleNamespace(loss=LOSS, logits=LOGITS),
    ],
    ids=lambda result: type(result).__name__,
)
def test_the_loss_is_found_beside_the_outputs(result):
    outputs, loss = batch_formats.parted(result)
    assert loss is LOSS
    assert batch_formats.normal(outputs) is LOGITS


@pytest.mark.parametrize(
    "result", [LOGITS, (LOGITS, None), (LOGITS,), {"logits": LOGITS}, Result(None, LOGITS)], ids=str
)
def test_without_a_loss_all_is_outputs(result):
    outputs, loss = batch_formats.parted(result)
    assert loss is None
    assert batch_formats.normal(outputs) is LOGITS


def test_a_number_alone_is_the_loss_and_what_is_compared():
    assert batch_formats.parted(LOSS) == (LOSS, LOSS)


def test_of_several_numbers_in_a_tuple_none_is_the_loss():
    with pytest.raises(InputError, match=r"returns 2 single numbers, and one of them is the loss\. Give .* loss\(self"):
        batch_formats.parted((LOSS, LOGITS, LOSS))


def test_outputs_have_names_by_their_place():
    hidden = [torch.zeros(1), torch.full((2,), 2.0)]
    ids = torch.arange(3)
    found = batch_formats.normal({"logits": LOGITS, "hidden": hidden, "ids": ids, "cache": object(), "none": None})
    assert isinstance(found, dict) and list(found) == ["logits", "hidden.0", "hidden.1"]
    assert list(batch_formats.by_name(found, "outputs")) == ["outputs.logits", "outputs.hidden.0", "outputs.hidden.1"]
    assert list(batch_formats.by_name(LOGITS, "outputs")) == ["outputs"]
    assert torch.equal(batch_formats.normal((ids,)), ids)  # nothing else to compare


def test_outputs_are_cut_off_from_autograd_and_complex_ones_are_pairs():
    assert not batch_formats.normal(LOSS * 2).requires_grad
    assert batch_formats.by_name(torch.ones(2, dtype=torch.complex64), "outputs")["outputs"].shape == (2, 2)


@pytest.mark.parametrize(
    ("loss", "error"),
    [
        (None, "returns no loss, and training needs one"),
        (0.5, "a loss of type float"),
        (torch.ones(3, requires_grad=True), r"has the shape \(3,\), and training needs one number\. Take its mean"),
        (torch.tensor(1.0), "does not depend on a parameter that learns"),
    ],
    ids=str,
)
def test_what_is_no_loss_of_a_training_step(loss, error):
    with pytest.raises(InputError, match=error):
        batch_formats.checked_loss(loss)


def test_every_tensor_of_a_batch_is_moved_and_nothing_else():
    pair = namedtuple("Pair", ["x", "length"])(torch.ones(2), 3)
    batch = {"ids": torch.arange(2), "x": torch.ones(2), "parts": [pair, "text"], "mask": None}
    found = batch_formats.placed(batch, "cpu", torch.float64)
    assert found["ids"].dtype == torch.int64 and found["x"].dtype == torch.float64
    assert found["parts"][0].x.dtype == torch.float64 and found["parts"][0].length == 3
    assert found["parts"][1] == "text" and found["mask"] is None
    assert type(found["parts"][0]) is type(pair) and batch["x"].dtype == torch.float32
    assert batch_formats.placed(torch.ones(2), "meta", torch.bfloat16).device.type == "meta"


@pytest.mark.parametrize("batch", ["text", None, 3], ids=str)
def test_what_is_no_batch(batch):
    with pytest.raises(InputError, match=f"batch is of type {type(batch).__name__}\\. Return a tensor"):
        batch_formats.placed(batch, "cpu", torch.float32)


def test_a_model_is_called_as_its_batch_says():
    def model(x, y=0):
        return x, y

    assert (
        batch_formats.called(model, (1, 2))
        == (1, 2)
        == batch_formats.called(model, {"y": 2, "x": 1})
        == batch_formats.called(model, [1, 2])
    )
    assert batch_formats.called(model, LOGITS) == (LOGITS, 0)
