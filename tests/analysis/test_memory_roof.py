"""Which level of memory judges a kernel of a GPU, and what flags a group, against figures worked out by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from perfkit import table
from perfkit.analysis.report.analyse import analyse_table
from perfkit.analysis.results import BackendReport
from perfkit.analysis.roofline.excluded import judge_rows
from perfkit.analysis.roofline.roof import BOUNDS, Judged, judge
from perfkit.hardware.ceilings import Ceiling, Ceilings
from tests.support.analysis import examples

MB = 1e6


def gpu(**changes: Any) -> Ceilings:
    """An L2 of 50 MB at 5 TB/s; main memory at 3 TB/s, in place at 2."""
    curve, in_place = [(1 * MB, 1e12), (32 * MB, 5e12), (64 * MB, 3.2e12), (4e9, 3e12)], [(32 * MB, 4e12), (4e9, 2e12)]
    named = (("add", "memory", curve), ("negate", "memory in place", in_place))
    details = [
        Ceiling(name=name, resource=resource, unit="B/s", value=rate, how="", working_set=size)
        for name, resource, points in named
        for size, rate in points
    ]
    known = Ceilings(
        fingerprint="f", device="cuda:0", measured_at="2026-01-01T00:00:00Z", threads=2, bandwidth=curve,
        in_place=in_place, compute={"vector_fp32": 50e12}, details=details, caches={"L2": 50 * MB},
    )  # fmt: skip
    return msgspec.structs.replace(known, **changes)


def kernel(time: float, read: float, written: float, **more: Any) -> dict[str, Any]:
    """Return a row of `time` µs that reads and writes these MB."""
    return {
        "name": "add", "short_name": "add", "kind": "gpu_kernel", "family": "elementwise", "duration_ns": time * 1e3,
        "flop_vector_fp32": 0.0, "bytes_read": read * MB, "bytes_written": written * MB, **more,
    }  # fmt: skip


def judged(*rows: dict[str, Any], ceilings: Ceilings | None = None) -> Judged:
    frame = table.build([{**row, "order": i} for i, row in enumerate(rows)]).frame
    return judge(frame, ceilings or gpu())


def bounds(found: Judged) -> list[str]:
    return [BOUNDS[b] for b in found.bound]


def texts(found: Judged) -> list[str]:
    return [found.ceilings[i] for i in found.ceiling]


def test_bytes_that_fit_l2_are_judged_by_l2_and_others_by_main_memory() -> None:
    found = judged(kernel(9, 10, 10), kernel(40, 25, 25), kernel(40, 26, 25), kernel(500, 500, 500))
    np.testing.assert_allclose(found.roof, [4e3, 10e3, 17e3, 1000 / 3 * 1e3])
    assert bounds(found) == ["l2", "l2", "memory", "memory"]
    assert texts(found)[1] == "add, 30.52 MiB working set (fits L2), 5.00 TB/s"
    assert texts(found)[2] == "add, 3.725 GiB working set (main memory), 3.00 TB/s"
    assert not found.above.any() and not found.helped.any()


def test_what_is_faster_than_main_memory_with_the_help_of_l2_counts_as_at_its_roof() -> None:
    # 80 MB: 26.7 µs from main memory, 16 µs through L2, which may hold all 40 MB read and all 40 MB written.
    found = judged(*(kernel(time, 40, 40) for time in (30, 26, 20, 15.5, 15)))
    np.testing.assert_allclose(found.roof, [80e3 / 3, 80e3 / 3, 20e3, 16e3, 16e3])
    assert found.helped.tolist() == [False, False, True, True, False]  # 26 µs is within the tolerance
    assert found.above.tolist() == [False, False, False, False, True]
    np.testing.assert_allclose(found.headroom, [30e3 - 80e3 / 3, 0, 0, 0, 0])
    assert texts(found)[2] == "add, 3.725 GiB working set (main memory), 3.00 TB/s; L2 held a part of the bytes"
    assert set(bounds(found)) == {"memory"}


def test_what_is_faster_than_l2_near_its_size_counts_as_at_its_roof_up_to_the_best_rate() -> None:
    # At 45 MB L2 was measured with 4 TB/s, for it held a part; at 32 MB with 5: 46 MB take 11.5 and 9.2 µs.
    near = gpu(bandwidth=[(32 * MB, 5e12), (45 * MB, 4e12), (64 * MB, 3.2e12), (4e9, 3e12)])
    found = judged(*(kernel(time, 23, 23) for time in (12, 11, 10, 9, 8)), ceilings=near)
    np.testing.assert_allclose(found.roof, [11.5e3, 11.5e3, 10e3, 9.2e3, 9.2e3])
    assert found.helped.tolist() == [False, False, True, True, False]  # 11 and 9 µs are within the tolerance
    assert found.above.tolist() == [False, False, False, False, True]
    assert set(bounds(found)) == {"l2"}
    assert texts(found)[2].endswith("; L2 held more of the bytes than where this was measured")


def test_l2_holds_no_more_than_its_size_of_what_is_read_and_of_what_is_written() -> None:
    # 500 + 500 MB: at least 450 + 450 MB pass main memory, 300 µs; 600 MB written: 550 MB, 183 µs.
    found = judged(kernel(310, 500, 500), kernel(280, 500, 500), kernel(185, 0, 600), kernel(170, 0, 600))
    assert found.helped.tolist() == [True, False, True, False]
    assert found.above.tolist() == [False, True, False, True]
    np.testing.assert_allclose(found.roof, [310e3, 300e3, 185e3, 550e3 / 3])


def test_arithmetic_may_still_be_the_bound() -> None:
    found = judged(kernel(24, 40, 40, flop_vector_fp32=1.15e9))  # 23 µs of arithmetic, and L2 helps with the bytes
    assert (bounds(found), found.helped.tolist()) == (["memory"], [True])
    found = judged(kernel(21, 40, 40, flop_vector_fp32=1.15e9))
    assert (bounds(found), found.helped.tolist(), found.above.tolist()) == (["vector_fp32"], [False], [True])


def test_counted_bytes_are_judged_by_main_memory_and_minimal_bytes_by_l2() -> None:
    counted = {"dram_read_bytes": 3 * MB, "dram_write_bytes": 3 * MB}
    much = {"dram_read_bytes": 30 * MB, "dram_write_bytes": 30 * MB}
    found = judged(kernel(9, 10, 10, **counted), kernel(30, 10, 10, **much), kernel(10, 10, 10, **much))
    np.testing.assert_allclose(found.roof, [4e3, 20e3, 20e3])  # 20 MB through L2; 60 MB of main memory
    assert bounds(found) == ["l2", "memory", "memory"]
    assert found.above.tolist() == [False, False, True]  # what was counted has moved: nothing explains it
    np.testing.assert_allclose(found.bytes, [6e6, 60e6, 60e6])


def test_a_kernel_that_moves_nothing_through_main_memory_is_judged_by_l2() -> None:
    rows = [kernel(6, 10, 10, dram_bytes=0.0, order=0)]
    found, withheld = judge_rows(table.build(rows).frame, gpu(), {})
    assert (found.roof.tolist(), bounds(found)) == ([4e3], ["l2"])
    assert not withheld["work not counted"].any()


def test_work_in_place_fits_by_what_it_reads() -> None:
    found = judged(kernel(30, 40, 40, name="neg_"), kernel(80, 60, 60, name="neg_"), kernel(50, 60, 60, name="neg_"))
    np.testing.assert_allclose(found.roof, [20e3, 60e3, 50e3])  # L2 in place at 4 TB/s, main memory in place at 2
    assert bounds(found) == ["l2", "memory", "memory"]
    assert found.helped.tolist() == [False, False, True]


def test_an_l2_of_unknown_rate_explains_but_does_not_judge() -> None:
    found = judged(kernel(9, 10, 10), kernel(4, 10, 10), ceilings=gpu(bandwidth=[(4e9, 3e12)]))
    np.testing.assert_allclose(found.roof, [20e3 / 3, 4e3])
    assert bounds(found) == ["memory", "memory"]
    assert (found.helped.tolist(), found.above.any()) == ([False, True], False)


@pytest.mark.parametrize("changes", [{"caches": {}}, {"device": "cpu"}])
def test_elsewhere_the_working_set_chooses_the_ceiling(changes: dict[str, Any]) -> None:
    found = judged(kernel(40, 26, 25), kernel(40, 33, 33), kernel(15, 33, 33), ceilings=gpu(**changes))
    np.testing.assert_allclose(found.roof, [51e3 / 5, 66e3 / 3.2, 66e3 / 3.2])
    assert (bounds(found), found.above.tolist()) == (["memory"] * 3, [False, False, True])


def test_unknown_bytes_and_times_stay_unknown() -> None:
    found = judged(kernel(40, np.nan, 25, flop_vector_fp32=np.nan), kernel(np.nan, 40, 40))
    assert np.isnan(found.roof[0]) and found.roof[1] == pytest.approx(80e3 / 3)
    assert not found.above.any() and not found.helped.any()


def rows(*given: tuple[str, str, float, float]) -> list[dict[str, Any]]:
    """Kernels of 100 µs and more, by (name, module, µs, share of their roof by arithmetic)."""
    return [
        {
            "name": name, "short_name": name, "module": module, "order": i, "duration_ns": time * 1e3,
            "pass": "forward", "kind": "cpu_op", "family": "elementwise",
            "flop_vector_fp32": share * time * 1e-6 * 20e9,
        }
        for i, (name, module, time, share) in enumerate(given)
    ]  # fmt: skip


def report(*given: tuple[str, str, float, float]) -> BackendReport:
    return analyse_table(table.build(rows(*given)), examples.ceilings(), "p").backends[0]


def test_a_group_is_flagged_by_the_share_of_its_time_that_lies_above_the_roof() -> None:
    found = report(("gelu", "h.0", 9, 1.2), ("mm", "h.0", 91, 0.5), ("gelu", "h.1", 11, 1.1), ("mm", "h.1", 89, 0.5))
    assert found.tree is not None
    first, second = found.tree.children[0].children
    assert (first.total.above_roof, first.total.above_ns, first.total.above_kernels) == (False, 9e3, ["gelu"])
    assert (second.total.above_roof, second.total.above_ns) == (True, 11e3)
    assert found.tree.total.above_roof and found.above_roof  # 20 of 200 µs
    assert (found.above_ns, found.above_kernels) == (20e3, ["gelu"])
    assert {g.key: g.above_roof for g in found.kernels} == {"mm": False, "gelu": True}


def test_a_group_is_flagged_where_what_cannot_be_lifts_its_efficiency() -> None:
    assert report(("broken", "h", 1, 7.0), ("mm", "h", 99, 0.5)).above_roof  # (7 − 1) µs of 100
    assert not report(("broken", "h", 1, 5.0), ("mm", "h", 99, 0.5)).above_roof


def test_the_kernels_of_a_flag_stand_by_their_time() -> None:
    found = report(*((f"k{i}", "h", 100 + i, 1.2) for i in range(12)), ("k3", "h", 100, 1.2))
    assert found.above_kernels == ["k3", "k11", "k10", "k9", "k8", "k7", "k6", "k5"]  # the first eight
    assert found.above_ns == pytest.approx(sum(100e3 + i * 1e3 for i in range(12)) + 100e3)


def test_the_report_says_how_much_l2_judges_and_helps() -> None:
    made = table.build(
        [{**row, "order": i} for i, row in enumerate([kernel(30, 10, 10), kernel(20, 40, 40), kernel(50, 99, 9)])]
    )
    found = analyse_table(made, gpu(), "p").backends[0]
    assert found.coverage is not None
    assert found.coverage.text.endswith(
        "Of it, 30.0 % moves what fits L2, and is judged by L2; 20.0 % is faster than measured, for a cache held more "
        "of its bytes, and counts as at its roof."
    )
    assert sum(g.helped_ns for g in found.kernels) == 20e3
