"""The outside of a report: whole ones are counted, anything cut off, overwritten or of a wrong type gets a sentence."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from perfkit.errors import InputError
from perfkit.readers.ncu import container
from tests.support.readers import mutations
from tests.support.readers.ncu_reports import block, report, result_of, varint, whole


def written(folder: Path, data: bytes) -> Path:
    path = folder / "a.ncu-rep"
    path.write_bytes(data)
    return path


def test_results_are_counted_with_their_share_of_the_payload(tmp_path: Path) -> None:
    assert container.check(written(tmp_path, whole())).sizes == [300, 200, 200]


def test_every_truncation_is_noticed_unless_it_falls_on_a_block_border(tmp_path: Path) -> None:
    data = whole()
    first = block([result_of(300)], names=b"\x0a\x01m")
    borders = {len(report(block(), first)), len(report(block(), first, block(sources=[b"y" * 9])))}
    for length in range(len(data)):
        path = written(tmp_path, data[:length])
        if length in borders:
            assert container.check(path).results == 1
            continue
        with pytest.raises(InputError, match="damaged Nsight Compute report"):
            container.check(path)


def raw(results: int, payload: bytes, extra: bytes = b"") -> bytes:
    """A block whose payload is not what its header says."""
    header = b"\x08\x00\x10" + varint(results) + b"\x28" + varint(len(payload)) + extra
    return len(header).to_bytes(4, "little") + header + payload


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"NVR", "does not begin"),
        (b"SQLite format 3\0", "does not begin"),
        (report(), "no results"),
        (report(block(sources=[b"only"])), "no results"),
        (report(raw(9, b"tiny")), "states 9 results in 4 bytes"),
        (report(raw(2, b"\x04\0\0\0only")), "does not hold what it states"),
        (report(raw(1, b"\x04\0\0\0only and more")), "holds more than it states"),
        (report(raw(1, b"\x05\0\0\0only")), "does not hold what it states"),
        (report(raw(1, b"x", b"\x32\x01a\x12\x01a")), "wrong type"),  # field 2 as bytes
        (report(raw(1, b"x", b"\x2d\0\0\0\0")), "wrong type"),  # field 5 as a fixed 32-bit number
        (report(raw(1, b"x", b"\x28\x01")), "out of order"),  # field 5 twice
        (report(raw(1, b"x", b"\x33")), "cannot be decoded"),  # a wire type of old
        (report(raw(1, b"x", b"\x52\x20a")), "ends within a field"),
        (report(raw(1, b"x", b"\x38" + b"\xff" * 11)), "number that does not end"),
        (report(block([result_of(99)], names=b"\x0a\x03a b\x0a\x01\x1b")), "table of names is broken"),
        (report(block([result_of(99)], names=b"\x0a\x01m\x0a\x01m")), "holds one twice"),
        (report(block([result_of(99)], names=b"\x0a\x09m")), "table of names is broken"),
        (b"NVR\0\xff\xff\xff\xff", "would be 4294967295 bytes long"),
    ],
)
def test_damage_is_named(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        container.check(written(tmp_path, data))


def test_a_missing_file_has_its_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        container.check(tmp_path / "none.ncu-rep")


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (b"\x10\x01\x08\x01", "out of order"),
        (b"\x6a\x20\x08\x00", "longer than its result"),
        (b"\x68\x01", "a metric has no content"),
        (b"\x6a\x02\x10\x01", "a metric has no number"),
        (b"\x6a\x04\x08\x00\x12\x09", "does not fit into it"),
        (b"\x6a\x06\x08\x00\x12\x02\x20\x01", "of no known kind"),  # field 4
        (b"\x6a\x07\x08\x00\x12\x03\x28\x01\x00", "of no known kind"),  # more than one field
        (b"\x6a\x06\x08\x00\x12\x02\x28\x01\x6a\x09\x08\x00\x12\x05\x0a\x03abc", "values of two kinds"),
        (b"\x6a\x06\x08\x05\x12\x02\x28\x01", "a metric has no name"),
        (b"\x0f", "of no known type"),
        (b"\x09\x01", "ends within a field"),
        (b"\x08" + b"\xff" * 12, "number that does not end"),
    ],
)
def test_damage_inside_a_result_is_named(tmp_path: Path, result: bytes, why: str) -> None:
    path = written(tmp_path, report(block([result_of(99), result], names=b"\x0a\x01m")))
    with pytest.raises(InputError, match=why):
        container.check_results(path, container.check(path))


def test_a_metric_has_one_kind_of_value_in_all_results(tmp_path: Path) -> None:
    path = written(tmp_path, report(block([b"\x6a\x06\x08\x00\x12\x02\x28\x01", result_of(99)], names=b"\x0a\x01m")))
    with pytest.raises(InputError, match="a real number in one result and something else"):
        container.check_results(path, container.check(path))


def test_results_state_their_metrics_and_sections(tmp_path: Path) -> None:
    result = b"\x08\x07\x10\x09" + b"\x6a\x02\x08\x00" + b"\x6a\x0d\x08\x01\x12\x09\x19" + b"\0" * 8 + b"\x8a\x01\x00"
    path = written(tmp_path, report(block([result], names=b"\x0a\x01a\x0a\x01b")))
    (shape,) = container.check_results(path, container.check(path))
    assert (shape.metrics, shape.sections, shape.identity) == ({0: 0, 1: 0x19}, 1, (7, 9))


@pytest.mark.parametrize("seeds", [100, pytest.param(1000, marks=pytest.mark.full)])
def test_any_mutation_is_read_or_refused(tmp_path: Path, seeds: int) -> None:
    data = whole()
    for seed in range(seeds):
        path = written(tmp_path, mutations.of_bytes(data, random.Random(seed))[1])
        with contextlib.suppress(InputError):
            found = container.check(path)
            assert 1 <= found.results == len(container.check_results(path, found)) <= len(data)
