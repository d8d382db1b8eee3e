"""Workloads that really run: the fault planted in each is found, and the same workload without it has none of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perfkit.analysis.results import Finding
from tests.support.analysis import faults
from tests.support.analysis.planted import PLANTED, Waited, findings

# Products in bf16 are four times as fast on the machine of `faults`; on this one as fast as in fp32.
EVEN = msgspec.structs.replace(faults.CEILINGS, compute={"matrix_fp32": 1e12, "vector_fp32": 1e12})

# Its memory is slower than any busy machine's, so that moving less there saves a share that shows.
SLOW = msgspec.structs.replace(
    faults.CEILINGS,
    bandwidth=[(1e9, 5e9)],
    details=[msgspec.structs.replace(faults.CEILINGS.details[0], value=5e9)],
)

# Effects of a busy machine on a step of some µs: time in which no kernel runs. Their own cases are long enough.
BY_TIME = {"overhead", "below-roof", "unequal-calls"}
TRUE = {"dense-embedding-gradient": {"gather-bound"}}  # of a step that does little else than to look rows up


def test_there_are_enough() -> None:
    assert len(PLANTED) >= 12


@pytest.mark.parametrize("rule", PLANTED)
def test_the_planted_fault_is_found(rule: str, tmp_path: Path) -> None:
    found = findings(PLANTED[rule][0](), tmp_path, SLOW if rule == "elementwise-chain" else faults.CEILINGS)
    assert rule in found and found[rule].share >= 0.02


@pytest.mark.parametrize("rule", PLANTED)
def test_without_it_nothing_is_found(rule: str, tmp_path: Path) -> None:
    """What a busy machine does to one recording is not in every one."""
    others = BY_TIME | TRUE.get(rule, set())
    for number in range(3):
        found = _healthy(rule, tmp_path / str(number))
        if rule not in found and not found.keys() - others:
            return
    assert rule not in found
    assert found.keys() - others == set()


def _healthy(rule: str, folder: Path) -> dict[str, Finding]:
    waited, steps = Waited(), 2
    folder.mkdir()
    found = findings(PLANTED[rule][1](), folder, EVEN, steps, waited)
    for name in ("unequal-calls", "overhead"):  # true where the program waited for as long
        if name in found and waited.ns / steps >= 0.5 * found[name].time_ns:
            del found[name]
    return found
