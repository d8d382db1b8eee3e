"""How long ago the bytes of a row were last used, and the roof that follows, against figures worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfkit import table
from perfkit.analysis.roofline import reuse
from perfkit.analysis.roofline.roof import BOUNDS, Judged, judge
from perfkit.hardware.ceilings import Ceilings
from tests.analysis.test_memory_roof import gpu
from tests.support.analysis.examples import MIB, ceilings

RESULT = 4096.0  # bytes that a call of `weights` writes


def weights(module: str, size: float = 1.0, time: float = 1e6, **more: Any) -> dict[str, Any]:
    """A product of a vector and a matrix of `size` MiB in fp32, which is the module's."""
    return {
        "name": "aten::mm", "kind": "cpu_op", "device": "cpu", "family": "matmul", "duration_ns": time,
        "module": module, "shapes": f"fp32[1×1024], fp32[1024×{int(256 * size)}]", "bytes_read": size * MIB + 4096,
        "bytes_written": RESULT, "flop_vector_fp32": 0.0, **more,
    }  # fmt: skip


def passes(count: int, *rows: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """`count` runs of a model that makes the calls `rows`."""
    return [{**row, **more, "order": i} for i, row in enumerate(row for _ in range(count) for row in rows)]


def distances(rows: list[dict[str, Any]]) -> dict[int, float]:
    """MiB since the last use of the largest kept tensor of each row."""
    frame = table.build(rows).frame
    found = reuse.uses(frame, np.ones(len(frame), bool))
    return {int(row): float(far) / MIB for row, far in zip(found.row, found.distance, strict=True)}


def judged(rows: list[dict[str, Any]], by: Ceilings | None = None) -> Judged:
    return judge(table.build(rows).frame, by or ceilings())


def text_of(found: Judged, row: int) -> str:
    return found.ceilings[found.ceiling[row]]


def layers(count: int) -> list[dict[str, Any]]:
    return [weights(f"h.{i}") for i in range(count)]


def test_the_distance_is_what_a_pass_reads() -> None:
    assert distances(passes(3, *layers(5))) == dict.fromkeys(range(15), 5.0)


def test_before_the_first_row_comes_the_last_one() -> None:
    assert distances(passes(1, *layers(5))) == dict.fromkeys(range(5), 5.0)
    assert distances(passes(1, weights("h.0"))) == {0: 1.0}


def test_what_is_used_again_at_once_is_near() -> None:
    """A cell that walks through time reads the same weights in each call."""
    cell = [weights("rnn")] * 8
    found = distances(passes(1, *cell, *layers(3)))
    assert [found[i] for i in range(8)] == [4.0, *[1.0] * 7]


def test_two_tensors_of_one_call_and_of_one_size_are_two() -> None:
    both = weights("mlp") | {"shapes": "fp32[1×1024], fp32[1024×256], fp32[1024×256]", "bytes_read": 2 * MIB + 4096}
    assert distances(passes(2, both, weights("out"))) == dict.fromkeys((0, 2), 2.0) | dict.fromkeys((1, 3), 3.0)


def test_what_a_call_in_between_may_have_made_is_not_kept() -> None:
    large = weights("loss") | {"bytes_written": 1.0 * MIB}
    assert not distances(passes(2, weights("h.0"), large)).keys() & {0, 2}
    smaller = weights("loss") | {"bytes_written": 1.0 * MIB - 1}
    assert distances(passes(2, weights("h.0"), smaller))[2] == 2.0


def test_activations_do_not_count_as_passing_in_between() -> None:
    add = weights("h.0") | {"shapes": "fp32[65536], fp32[65536]", "bytes_read": MIB / 2, "bytes_written": MIB / 4}
    assert distances(passes(2, weights("h.0"), add, weights("h.1")))[3] == 2.0


def test_a_call_of_unknown_work_writes_its_largest_argument_at_most() -> None:
    unknown = {"bytes_read": None, "bytes_written": None}
    small = weights("attn", 0.5) | unknown
    assert distances(passes(2, weights("h.0"), small))[2] == 1.0  # how much it read is unknown too
    large = weights("attn", 1) | unknown
    assert 2 not in distances(passes(2, weights("h.0"), large))
    nothing = weights("attn") | unknown | {"shapes": None}
    assert 2 not in distances(passes(2, weights("h.0"), nothing))


def test_a_lookup_reads_rows_and_not_the_table() -> None:
    lookup = weights("wte", 64) | {"shapes": "fp32[16384×1024], int64[1]", "bytes_read": 4104.0}
    found = distances(passes(2, lookup, weights("h.0")))
    assert found[3] == pytest.approx(1 + 4104 / MIB)


def test_devices_have_caches_of_their_own() -> None:
    rows = [weights("h.0"), weights("h.1", device="cuda:0"), weights("h.1"), weights("h.2", device="cuda:0")]
    assert distances(passes(2, *rows)) == dict.fromkeys(range(8), 2.0)


@pytest.mark.parametrize(("count", "rate", "level"), [(63, 50e9, "fits L2"), (64, 10e9, "main memory")])
def test_a_pass_just_below_and_just_above_what_was_measured(count: int, rate: float, level: str) -> None:
    found = judged(passes(2, *layers(count)))
    read = MIB + 4096
    least = max(MIB / rate, (read + RESULT) / 50e9) * 1e9  # its own bytes pass at the 50 GB/s of 1 MiB
    np.testing.assert_allclose(found.roof, least)
    assert level in text_of(found, 0)
    assert text_of(found, 0).endswith("; by what is read between two uses") == (count == 64)
    assert not found.helped.any() and not found.above.any()


def test_what_is_read_is_judged_by_reading() -> None:
    found = judged(passes(2, *layers(65)), ceilings(reading=[(2.0**16, 90e9), (2.0**20, 40e9), (2.0**26, 8e9)]))
    np.testing.assert_allclose(found.roof, MIB / 8)


def test_what_is_faster_than_its_distance_allows_counts_as_at_its_roof() -> None:
    """105 µs from main memory, 21 by its own bytes: what lies between counts as held in part, below is a fault."""
    times = [1e6, 101e3, 60e3, 21e3, 19e3]
    found = judged(passes(1, *(weights(f"h.{i}", time=times[i % 5]) for i in range(65))))
    own = (MIB + 8192) / 50
    np.testing.assert_allclose(found.roof[:5], [MIB / 10, MIB / 10, 60e3, own, own])
    assert found.helped[:5].tolist() == [False, False, True, True, False]  # 101 µs is within the tolerance
    assert found.above[:5].tolist() == [False, False, False, False, True]
    assert text_of(found, 2).endswith("by what is read between two uses; a cache held a part of the bytes")


def test_a_near_tensor_of_a_row_does_not_spare_a_far_one() -> None:
    """One of two tensors that a row reads was read by its module just before."""
    near = weights("h.0", 2) | {"shapes": "fp32[1024×512]"}
    both = weights("h.0", 3) | {"shapes": "fp32[1024×512], fp32[1024×256]"}
    found = judged(passes(2, near, both, *(weights(f"h.{i}") for i in range(1, 70))))
    np.testing.assert_allclose(found.roof[1], MIB / 10)  # 1 MiB at 10 GB/s takes longer than 3 MiB at 50
    np.testing.assert_allclose(found.roof[0], 2 * MIB / 10)


def test_counted_bytes_are_what_they_are() -> None:
    rows = passes(2, *layers(65), dram_bytes=5e5)
    np.testing.assert_allclose(judged(rows).roof, 5e5 / 10)


@pytest.mark.parametrize(("count", "bound", "roof"), [(47, "l2", 20 * MIB / 20e3), (48, "memory", 20 * MIB / 3e3)])
def test_l2_judges_weights_only_where_a_pass_fits_it(count: int, bound: str, roof: float) -> None:
    """An L2 of 50 MB holds 47 MiB and not 48. Its rate is 20 TB/s, main memory's 3."""
    rest = count - 20
    rows = [weights("h.0", 20), *(weights(f"h.{i}") for i in range(1, rest + 1))]
    by = gpu(bandwidth=[(1e6, 20e12), (32e6, 20e12), (4e9, 3e12)], in_place=[])
    found = judged(passes(3, *rows, kind="gpu_kernel", device="cuda:0", time_origin="counter"), by)
    assert BOUNDS[found.bound[0]] == bound
    assert found.roof[0] == pytest.approx(roof, rel=1e-3)
    assert text_of(found, 0).endswith("3.00 TB/s; by what is read between two uses") == (bound == "memory")


def test_weights_that_l2_kept_count_as_at_their_roof() -> None:
    rows = [weights("h.0", 20, time=time) for time in (5e3, 0.9e3)]
    by = gpu(bandwidth=[(1e6, 20e12), (32e6, 20e12), (4e9, 3e12)], in_place=[])
    for row, (above, roof) in zip(rows, ((False, 5e3), (True, (20 * MIB + 8192) / 20e3)), strict=True):
        step = [row, *(weights(f"h.{i}") for i in range(1, 40))]
        found = judged(passes(2, *step, kind="gpu_kernel", device="cuda:0"), by)
        assert (found.above[0], found.helped[0]) == (above, not above)
        assert found.roof[0] == pytest.approx(roof)
        assert text_of(found, 0).endswith("; L2 held a part of the bytes")


def stack_distances(keys: list[str], sizes: dict[str, float]) -> list[float]:
    """By the definition: a stack of all tensors, the last used on top, walked twice through the calls."""
    stack: list[str] = []
    found = []
    for key in keys * 2:
        above = stack[: stack.index(key)] if key in stack else []
        found.append(sum(sizes[one] for one in above) + sizes[key])
        stack = [key, *(one for one in stack if one != key)]
    return found[len(keys) :]


@pytest.mark.parametrize("seed", range(5))
def test_distances_are_those_of_a_stack(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = {f"h.{i}": float(random.integers(1, 8)) for i in range(12)}
    keys = [f"h.{i}" for i in random.permutation(np.concatenate([np.arange(12), random.integers(0, 12, 60)]))]
    found = distances([{**weights(key, sizes[key]), "order": i} for i, key in enumerate(keys)])
    assert list(found.values()) == stack_distances(keys, sizes)


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_of_many_windows(seed: int) -> None:
    random = np.random.default_rng(seed)
    values, first = random.random(50), random.integers(0, 50, 200)
    stop = np.minimum(first + random.integers(0, 51, 200), 50)
    expected = [values[a:b].max(initial=0.0) for a, b in zip(first, stop, strict=True)]
    np.testing.assert_array_equal(reuse._largest(values, first, stop), expected)


def test_a_distance_is_summed_up_over_so_many_tensors_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse, "FARTHEST", 3)
    assert distances(passes(2, *layers(9))) == dict.fromkeys(range(18), 4.0)


def test_a_table_without_shapes_says_nothing() -> None:
    assert distances(passes(2, *layers(9), shapes=None)) == {}
