"""Inter-token latency by counts of requests: equal to that of each request, in engines that are simulated by name."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from perfkit.analysis.report.latency import median_and_slow, token_waits
from perfkit.engines import Iteration
from perfkit.render.sections.serving import serving_figures
from tests.support.analysis.serving import decode, engine, mixed, prefill


def simulated(seed: int, mixes: bool) -> tuple[list[Iteration], list[float], list[list[float]]]:
    """Iterations of an engine that mixes prompts with decode, or reads them first and lets decode wait; and of each
    iteration the time since the last token of each request that gets a further one, by the requests' own names."""
    drawn = random.Random(seed)
    left, ends, served, times, waits = dict[int, int](), dict[int, float](), list[Iteration](), list[float](), []
    clock, number = 0.0, 0
    for _ in range(60):
        new = range(number, number + drawn.choice([0, 0, 0, 1, 2])) if len(left) < 6 else range(0)
        running = list(left) if mixes or not new else []
        if not (new or running):
            continue
        number += len(new)
        time = drawn.uniform(1, 9)
        clock += time
        waits.append([clock - ends[one] for one in running])
        served.append(Iteration(len(new), len(running), 10 * len(new), len(running)))
        times.append(time)
        left |= {one: drawn.randint(2, 9) for one in new}
        for one in [*running, *new]:
            ends[one] = clock
            left[one] -= 1
        left = {one: count for one, count in left.items() if count}
    return served, times, waits


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("mixes", [True, False])
def test_waits_by_counts_are_those_of_the_requests(seed: int, mixes: bool) -> None:
    served, times, waits = simulated(seed, mixes)
    found = token_waits(served, times)
    first = next(i for i, one in enumerate(served) if one.generating)
    assert not found[first]
    for mine, true in list(zip(found, waits, strict=True))[first + 1 :]:
        spread = sorted(wait for wait, count in mine for _ in range(count))
        assert spread == pytest.approx(sorted(true))


def test_what_is_unknown_has_no_waits() -> None:
    decoding, speculating = Iteration(0, 4, 0, 4), Iteration(0, 4, 0, 9)
    assert token_waits([decoding, speculating, decoding, None, decoding], [1.0] * 5) == [[], [], [(1.0, 4)], [], []]
    prompts = Iteration(6, 0, 60, 0)  # of which four go on, or two and two of before: nobody knows
    assert token_waits([decoding, prompts, decoding], [1.0] * 3) == [[], [], []]
    assert token_waits([decoding, Iteration(0, 2, None, None)], [1.0] * 2) == [[], []]
    assert median_and_slow([[], []]) == (None, None)


def test_a_prefill_in_between_is_waited_for() -> None:
    """Decode of 8 takes 267 µs; one prompt is read in 1002 µs, for which 8 wait and the ninth does not."""
    report = engine([decode(), decode(), prefill(1000), decode(generating=9), decode(generating=9), mixed(400)])
    found = {phase.name: phase for phase in report.serving}
    assert found["prefill"].token_ns is None
    assert found["decode"].token_ns == pytest.approx(267e3)  # of 8, 9 and 1 tokens; 8 took 1269 µs
    assert found["decode"].token_slow_ns == pytest.approx(1269e3)
    assert found["mixed"].token_ns == pytest.approx(457e3)


def test_figures_have_each_iteration_where_it_begins() -> None:
    report = engine([decode(), prefill(1000), decode(), mixed(400)])
    time, tokens = serving_figures(report.serving)
    assert {s.name: s.x for s in time.series} == {
        "prefill": [pytest.approx(0.267)], "mixed": [pytest.approx(1.536)],
        "decode": [pytest.approx(0.0), pytest.approx(1.269)],
    }  # fmt: skip
    assert time.x == "begin (ms)" and time.y == "time (ms)"
    assert {s.name: s.y for s in time.series}["decode"] == [pytest.approx(0.267)] * 2
    assert {s.name: s.y for s in tokens.series} == {"prefill": [4000], "mixed": [1008], "decode": [8, 8]}
    assert all(a <= b for s in time.series for a, b in pairwise(s.x)) and tokens.log_y
    assert not serving_figures([]) and not serving_figures(engine([decode()]).serving)
