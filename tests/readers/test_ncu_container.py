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
        (report(raw(1, b"x", b"\x33")), "cannot be decoded"),  # a wire type of old
        (report(raw(1, b"x", b"\x52\x20a")), "ends within a field"),
        (report(raw(1, b"x", b"\x38" + b"\xff" * 11)), "number that does not end"),
        (b"NVR\0\xff\xff\xff\xff", "would be 4294967295 bytes long"),
    ],
)
def test_damage_is_named(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        container.check(written(tmp_path, data))


def test_a_missing_file_has_its_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        container.check(tmp_path / "none.ncu-rep")


@pytest.mark.parametrize("seeds", [100, pytest.param(1000, marks=pytest.mark.full)])
def test_any_mutation_is_read_or_refused(tmp_path: Path, seeds: int) -> None:
    data = whole()
    for seed in range(seeds):
        path = written(tmp_path, mutations.of_bytes(data, random.Random(seed))[1])
        with contextlib.suppress(InputError):
            found = container.check(path)
            assert 1 <= found.results <= len(data)
