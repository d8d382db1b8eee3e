"""The parts of a rank's step, by hand."""

from __future__ import annotations

import pytest

from perfkit.ranks.analyse import analyse
from tests.support.ranks.streams import compute, member, talk

STEP_US = 100.0
CASES = {
    # Kernels of the rank that waits from 10 to 60 µs and has transferred at 70: its waiting, exposed transfer, copies,
    # idle and overlapped time, µs.
    "waits outside computation": ([compute(0, 40)], (20, 10, 0, 30, 30)),
    "waits alone": ([compute(0, 10)], (50, 10, 0, 30, 0)),
    "computes over its end": ([compute(0, 10), compute(50, 40)], (40, 0, 0, 10, 20)),
    "copies outside it": ([compute(0, 40), compute(65, 15, kind="memcpy")], (20, 10, 10, 20, 30)),
    "fills": ([compute(0, 10), compute(80, 5, kind="memset")], (50, 10, 5, 25, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_waiting_that_computation_covers_is_not_counted_twice(name: str) -> None:
    kernels, expected = CASES[name]
    ranks = [[compute(0, 60), talk(60, 10)], [*kernels, talk(10, 60)]]
    early = analyse([member(i, 2, ours, STEP_US * 1e3, 4, "NVIDIA H200") for i, ours in enumerate(ranks)]).parts[1]
    told = (early.waiting_ns, early.exposed_ns, early.copy_ns, early.overlapped_ns)
    waiting, exposed, copies, idle, overlapped = (us * 1e3 for us in expected)
    assert told == pytest.approx((waiting, exposed, copies, overlapped)) and early.transfer_ns == pytest.approx(10e3)
    assert early.compute_ns + waiting + exposed + copies + idle == pytest.approx(STEP_US * 1e3)


@pytest.mark.parametrize("apart", [7.13, 7.1234567])
def test_times_that_are_no_whole_numbers_leave_no_rest(apart: float) -> None:
    """Sums of such times differ by 1e-12 ns, which no column may show as more, or less, than nothing."""
    pairs = [(compute(0.1 + apart * i, 2.31), talk(1.255 + apart * i, 3.77)) for i in range(9)]
    kernels = [kernel for pair in pairs for kernel in pair]
    for part in analyse([member(rank, 2, kernels, STEP_US * 1e3, 3, "NVIDIA H200") for rank in (0, 1)]).parts:
        assert (part.waiting_ns, part.copy_ns) == (0.0, 0.0)
