"""The trimmed copy that NVIDIA's reader gets: what comes back is what it says of the report itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfkit.readers.ncu import child, container, trimmed
from tests.packed import ncu_file
from tests.readers import mutations

OF_BOTH = (trimmed.METRIC, trimmed.SECTION)
TRIMMED = ["kernels-full", "kernels-roofline", "products-full"]
WHOLE = ["kernels-basic", "kernels-metrics", "products-range", "products-graph"]


@pytest.fixture
def report(tmp_path):
    def write(name: str) -> Path:
        path = tmp_path / f"{name}.ncu-rep"
        path.write_bytes(ncu_file(path.name))
        return path

    return write


@pytest.mark.parametrize("name", [*TRIMMED, *WHOLE])
def test_the_reader_says_the_same_of_the_copy(report, name, monkeypatch):
    pytest.importorskip("ncu_report")
    monkeypatch.setattr(child, "TRIMMED_FROM", 0)
    path = report(name)
    trimmed_results = child.read_results(path, container.check(path))
    said, asked = child._said, []

    def whole(request, seconds):
        asked.append(bool(request["trim"]))
        if request["trim"]:
            raise child._Failed("as if the reader died of the copy")
        return said(request, seconds)

    monkeypatch.setattr(child, "_said", whole)
    assert child.read_results(path, container.check(path)) == trimmed_results
    assert asked == [True, False]  # and a reader that dies of the copy gets the report


@pytest.mark.parametrize("name", [*TRIMMED, *WHOLE])
def test_reports_of_large_results_are_trimmed(report, name):
    found = container.check(report(name))
    trimmed_ones = child._worth_trimming(found, (0, found.results))
    assert len(trimmed_ones) == (found.results if name in TRIMMED else 0)


def test_a_reader_that_hangs_is_not_asked_twice(report, monkeypatch):
    pytest.importorskip("ncu_report")
    asked = []

    def hangs(request, seconds):
        asked.append(request["first"])
        raise child._Hung("it did not finish")

    monkeypatch.setattr(child, "_said", hangs)
    path = report("kernels-roofline")
    with pytest.raises(child.InputError, match="did not finish"):
        child.read_results(path, container.check(path))
    assert asked == [0]


def test_a_full_report_is_mostly_hidden_and_nothing_moves(report):
    path = report("kernels-full")
    whole = path.read_bytes()
    found = container.check(path)
    results = [(start, size, True) for start, size in zip(found.starts, found.sizes, strict=True)]
    descriptor = trimmed.copy(str(path), results, 1, 3)
    copied = os.pread(descriptor, len(whole) + 1, 0)
    os.close(descriptor)
    assert len(copied) == len(whole)
    at = hidden = 0
    for index, (start, size, _) in enumerate(results):
        assert copied[at:start] == whole[at:start]
        at = start + size
        if 1 <= index < 3:
            theirs, ours = mutations.parse(whole[start:at]), mutations.parse(copied[start:at])
            assert [(number, wire, len(content)) for number, wire, content in theirs] == [
                (number, wire, len(content)) for number, wire, content in ours
            ]
            hidden += sum(
                unknown(content) for number, _, content in ours if number in (trimmed.METRIC, trimmed.SECTION)
            )
        else:
            assert not any(copied[start:at])
    assert copied[at:] == whole[at:]
    assert hidden > 0.6 * (results[1][1] + results[2][1])


def unknown(content: bytes) -> int:
    """Bytes of the fields that no reader knows."""
    return sum(len(inner) for number, _, inner in mutations.parse(content) if number == 15)


@pytest.mark.parametrize("count", [2, 9, 14, 15, 1820, 1821, 30_000])
def test_instances_become_one_field_of_any_length(count):
    instances = b"".join(mutations.build([(3, 2, bytes(n % 3 + 5))]) for n in range(count))
    metric = (
        mutations.build([(1, 0, b"\x07"), (2, 2, b"\x19" + bytes(8))]) + instances + mutations.build([(4, 0, b"\x01")])
    )
    result = bytearray(mutations.build([(trimmed.METRIC, 2, metric), (20, 0, b"\x01")]))
    trimmed.hide(result)
    ((_, _, found), last) = mutations.parse(bytes(result))
    assert [number for number, _, _ in mutations.parse(found)] == [1, 2, 15, 4]
    assert len(found) == len(metric) and last == (20, 0, b"\x01")


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_what_does_not_fit_together_is_refused(cut):
    metric = mutations.build([(1, 0, b"\x07"), *((3, 2, bytes(9)) for _ in range(9))])
    data = bytearray(mutations.build([(trimmed.METRIC, 2, metric)])[:-cut])
    with pytest.raises((ValueError, IndexError)):
        trimmed.hide(data)
