"""Rates of causal attention: measured, kept with the ceilings, and read between the sizes that were measured."""

from __future__ import annotations

import math

import pytest

from perfkit.hardware.assemble import DeviceFacts, assemble
from perfkit.hardware.attention import ATTENTION, BACKWARD, FORWARD, CausalRate, flop, rate_at
from perfkit.hardware.ceilings import from_json, to_json
from perfkit.hardware.observation import Observation
from perfkit.hardware.torch_attention import attention_observations
from perfkit.hardware.torch_bench import cpu_best_of

RATES = [
    CausalRate(head=64, length=512, forward=100.0, backward=60.0),
    CausalRate(head=64, length=2048, forward=300.0, backward=80.0),
    CausalRate(head=128, length=512, forward=200.0, backward=120.0),
    CausalRate(head=128, length=2048, forward=400.0, backward=160.0),
]


@pytest.mark.parametrize(
    ("head", "length", "backward", "rate"),
    [
        (64, 512, False, 100.0),
        (128, 2048, True, 160.0),
        (64, 1024, False, 200.0),  # half way, by the logarithm
        (128, 1024, True, 140.0),
        (90.50966799187809, 1024, False, 250.0),  # the root of 64 x 128: half way between 200 and 300
        (64, 64, False, 100.0),
        (64, 8192, True, 80.0),
        (256, 512, False, 200.0),
        (32, 512, False, 50.0),  # bound by the softmax of the scores: half the numbers in the same time
    ],
)
def test_rates_between_the_sizes_that_were_measured(head: float, length: int, backward: bool, rate: float) -> None:
    assert rate_at(RATES, head, length, backward) == pytest.approx(rate)  # type: ignore[arg-type]


def test_no_rate_is_known_where_none_was_measured() -> None:
    assert rate_at([], 64, 512, False) is None


def test_flop_by_hand() -> None:
    """Six pairs of three places, two products of heads of four numbers, for each of five heads."""
    assert flop(5, 3, 4, 2) == 5 * 6 * 2 * (2 * 4)


def test_what_is_measured_is_kept() -> None:
    seen = attention_observations("cpu", 0.005, cpu_best_of, sizes=((64, 64), (64, 128)), rows=512)
    assert [one.what for one in seen] == [FORWARD, BACKWARD] * 2 and all(one.ok for one in seen)
    assert [one.sizes for one in seen] == [(64, 64)] * 2 + [(64, 128)] * 2
    memory = Observation(resource="memory", what="torch add", how="torch, fp32", rate=1e11, by="torch", working_set=1e6)
    machine = DeviceFacts(fingerprint="f", device="cuda:0", device_name="a GPU", threads=1)
    made = from_json(to_json(assemble([memory, *seen], machine, "2026-01-01T00:00:00+00:00")))
    assert [(one.head, one.length) for one in made.attention] == [(64, 64), (64, 128)]
    assert made.attention[0].forward == seen[0].rate and made.attention[1].backward == seen[3].rate
    assert ATTENTION not in made.compute and all(c.ok is not False for c in made.checks if c.name == "results")


def test_the_rate_is_flop_over_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One and four seconds: the backward pass takes three."""
    times = iter([1.0, 4.0])
    forward, backward = attention_observations(
        "cpu", 0.0, lambda call, seconds: next(times), sizes=((64, 64),), rows=128
    )
    pairs = 2 * 64 * 65 / 2
    assert forward.rate == pytest.approx(2 * 2 * 64 * pairs) and backward.rate == pytest.approx(5 * 2 * 64 * pairs / 3)
    assert math.isfinite(forward.rate)
