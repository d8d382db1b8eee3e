"""The outside of a report: whole ones are counted, anything cut off, overwritten or of a wrong type gets a sentence."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from perfkit.errors import InputError
from perfkit.readers.ncu import container
from tests.readers.ncu_reports import block, report, varint, whole


def written(folder: Path, data: bytes) -> Path:
    path = folder / "a.ncu-rep"
    path.write_bytes(data)
    return path


def test_results_are_counted_with_their_share_of_the_payload(tmp_path: Path) -> None:
    assert container.check(written(tmp_path, whole())).sizes == [300, 200, 200]


def test_every_truncation_is_noticed_unless_it_falls_on_a_block_border(tmp_path: Path) -> None:
    data = whole()
    borders = {
        len(report(block(0, b""), block(1, b"x" * 300))),
        len(report(block(0, b""), block(1, b"x" * 300), block(0, b"y" * 9))),
    }
    for length in range(len(data)):
        path = written(tmp_path, data[:length])
        if length in borders:
            assert container.check(path).results == 1
            continue
        with pytest.raises(InputError, match="damaged Nsight Compute report"):
            container.check(path)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"NVR", "does not begin"),
        (b"SQLite format 3\0", "does not begin"),
        (report(), "no results"),
        (report(block(0, b"only")), "no results"),
        (report(block(9, b"tiny")), "states 9 results in 4 bytes"),
        (report(block(1, b"x", b"\x12\x01a")), "wrong type"),  # field 2 as bytes
        (report(block(1, b"x", b"\x2d\0\0\0\0")), "wrong type"),  # field 5 as a fixed 32-bit number
        (report(block(1, b"x", b"\x33")), "cannot be decoded"),  # a wire type of old
        (report(block(1, b"x", b"\x3a\x20a")), "ends within a field"),
        (report(block(1, b"x", b"\x38" + b"\xff" * 11)), "broken number"),
        (report(block(1, b"x", b"\x28" + varint(1 << 60))), "ends 1152921504606846975 bytes early"),
        (b"NVR\0\xff\xff\xff\xff", "would be 4294967295 bytes long"),
    ],
)
def test_damage_is_named(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        container.check(written(tmp_path, data))


def test_a_missing_file_has_its_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        container.check(tmp_path / "none.ncu-rep")


def test_any_mutation_is_read_or_refused(tmp_path: Path) -> None:
    data, chance = whole(), random.Random(3)
    for _ in range(1000):
        mutated = bytearray(data)
        for _ in range(chance.randint(1, 6)):
            mutated[chance.randrange(len(mutated))] = chance.randrange(256)
        with contextlib.suppress(InputError):
            assert 1 <= container.check(written(tmp_path, bytes(mutated))).results <= len(data)
