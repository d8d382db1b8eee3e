"""The example of the manual: the same text in docs/ and examples/, and it runs through the interface."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from perfkit.errors import UsageError
from perfkit.workloads import find, resolve_settings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "my_model.py"


@pytest.fixture(scope="module")
def workload():
    return find(str(EXAMPLE))


def test_the_manual_shows_the_example():
    page = (ROOT / "docs" / "writing-a-workload.md").read_text(encoding="utf-8")
    shown = page.partition("```python\n# my_model.py\n")[2].partition("```")[0]
    assert shown == EXAMPLE.read_text(encoding="utf-8")


def test_it_trains(workload):
    settings = resolve_settings(workload)
    assert (settings.preset, settings.batch_size, settings.sequence_length) == ("small", 64, None)
    model = workload.build(settings)
    optimizer = workload.optimizer(model, settings)
    losses = []
    for step in range(20):
        optimizer.zero_grad()
        scores, loss = model(*workload.batch(settings, step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert scores.shape == (64, 10)
    assert losses[-1] < losses[0]
    assert workload.samples_per_step(settings) == 64


def test_its_batches_repeat(workload):
    settings = resolve_settings(workload)
    for first, again in zip(workload.batch(settings, 5), workload.batch(settings, 5), strict=True):
        assert torch.equal(first, again)
    assert not torch.equal(workload.batch(settings, 0)[0], workload.batch(settings, 1)[0])


def test_it_infers(workload):
    settings = resolve_settings(workload, preset="wide", training=False)
    scores, loss = workload.build(settings)(*workload.batch(settings, 0))
    assert scores.shape == (256, 100)
    assert loss is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"weights": "file.bin"}, "my_model does not take --weights"),
        ({"data": "text.txt"}, "my_model does not take --data"),
        ({"recompute": True}, "my_model does not take --recompute"),
        ({"optimizer": "fused"}, "my_model does not take --optimizer"),
        ({"sequence_length": 8}, "my_model has no sequence length"),
        ({"variant": "other"}, r"no variant of my_model called 'other'\. There is nothing to choose from"),
    ],
    ids=str,
)
def test_options_it_does_not_have(workload, options, error):
    with pytest.raises(UsageError, match=error):
        resolve_settings(workload, **options)
