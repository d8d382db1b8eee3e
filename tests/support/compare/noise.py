"""Step times like those of a noisy machine: what a process brings with it, drift, moods of the machine, bursts."""

from __future__ import annotations

import numpy as np


def launches(
    random: np.random.Generator, count: int, effect: float = 0.0, turn_steps: int = 10, rounds: int = 2
) -> tuple[list[float], list[float]]:
    """The median step of each launch for both sides, measured A B B A, the second slower by the share `effect`.

    The machine's speed is an AR(1) series in time (steps in a row are correlated by 0.95) with a drift of up to 30 %
    over the whole measurement; now and then a burst makes some steps in a row up to three times as slow; and each
    process is faster or slower for its whole life by some percent.
    """
    total = count * rounds * 4 * turn_steps
    mood = np.zeros(total)
    shocks = random.normal(0, 0.02, total)
    for i in range(1, total):
        mood[i] = 0.95 * mood[i - 1] + shocks[i]
    level = np.exp(mood + np.linspace(0, random.uniform(-0.3, 0.3), total)) * random.lognormal(0, 0.03, total)
    for _ in range(random.poisson(3 * count / 10)):
        start = random.integers(0, total)
        level[start : start + random.integers(5, 40)] *= random.uniform(1.2, 3.0)
    found: tuple[list[float], list[float]] = ([], [])
    at = 0
    for _ in range(count):
        of_process = np.exp(random.normal(0, 0.01, 2))
        order = (0, 1) if random.random() < 0.5 else (1, 0)
        samples: tuple[list[float], list[float]] = ([], [])
        for side in (*order, *order[::-1]) * rounds:
            steps = level[at : at + turn_steps] * of_process[side] * (1 + effect * side)
            samples[side].extend(steps)
            at += turn_steps
        for side in (0, 1):
            found[side].append(float(np.median(samples[side])))
    return found
