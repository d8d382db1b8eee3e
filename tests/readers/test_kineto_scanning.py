"""The scanner in C gives what the decoder gives, or leaves a piece to it: on real, made and damaged traces."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perfkit.errors import PerfkitError, Unavailable
from perfkit.readers.kineto import decoding, scanning, stream
from perfkit.readers.kineto.collect import Collector, wanted_operator
from perfkit.readers.kineto.scanning import Scanned, Scanner
from perfkit.readers.kineto.trace import read_trace
from tests.readers.mutations import STRANGE
from tests.readers.traces import event, mark, op, write

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kineto"
REAL = sorted(path.name for path in FIXTURES.glob("*.json.gz"))
TAKEN = {"nccl-rank0.json.gz": 0.1}  # pieces with collectives are decoded


@pytest.fixture(scope="module")
def scanner():
    library = scanning._library()
    if library is None:
        pytest.skip("there is no C compiler")
    return Scanner(library)


def memory_of(text: bytes) -> memoryview:
    """`text` with a zero and some more behind it, as a piece of a file has it."""
    return memoryview(bytearray(text + b"\0" + b'"' * stream.BEHIND))[: len(text)]


def collected(events: Any) -> dict[str, Any]:
    collector = Collector(wanted_operator(lambda name: name.startswith("aten::")))
    collector.add(events)
    host, device = collector.finish()
    return {**dataclasses.asdict(host), **{f"device {k}": v for k, v in dataclasses.asdict(device).items()}}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


def scanned_alike(scanner: Scanner, text: bytes) -> bool:
    """Whether the scanner took `text`; then the decoder must give the very same."""
    found = scanner.scan(memory_of(text))
    if found is None:
        return False
    events = decoding._events.decode(text)
    assert found.events == len(events)
    assert same(collected(found), collected(events)), text[:2000]
    return True


def listed(events: list[Any], **how: Any) -> bytes:
    return json.dumps(events, **how).encode()


@pytest.mark.parametrize("name", REAL)
def test_real_traces(monkeypatch, scanner, name):
    monkeypatch.setattr(stream, "PIECE", 1 << 15)
    taken = [scanned_alike(scanner, bytes(piece)) for piece in stream.Pieces(FIXTURES / name)]
    assert sum(taken) >= TAKEN.get(name, 0.99) * len(taken)


EVENTS = [
    op("aten::mm", 0, 10, [[4, 8], [8, 2]], seq=3),
    op("aten::add_", 10, 11, [[192], [192], []], types=["float", "float", "Scalar"]),
    op("custom", 11, 12, [[3]]),
    mark("ProfilerStep#1", 0, 20),
    event("python_function", "train.py(3): step", 0, 20, **{"Python id": 7, "Python parent id": None}),
    event("cuda_runtime", "cudaLaunchKernel", 3, 4, correlation=71, cbid=211),
    event("cuda_driver", "cuLaunchKernel", 5, 6, pid=2, correlation=2**40),
    event("kernel", "void gemm<float>(int)", 6, 9.25, pid=0, tid=7, device=0, stream=7, correlation=71,
          grid=[2, 1, 1], block=[128, 1, 1], **{"registers per thread": 40, "shared memory": 1024,
          "warps per SM": 3.5, "est. achieved occupancy %": 12}),
    event("gpu_memcpy", "Memcpy HtoD", 9, 10, pid=0, tid=7, device=0, stream=7, correlation=5, bytes=4096),
    event("gpu_memset", "Memset", 10, 10.5, pid=0, tid=7, device=-3, stream=2**40, correlation=6, bytes=0),
    event("Trace", "PyTorch Profiler (0)", 0, 30, pid="Spans", tid="PyTorch Profiler"),
    event("gpu_user_annotation", "forward", 0, 30),
    {"ph": "s", "id": 9, "pid": 1, "tid": 1, "ts": 1e6 + 1, "cat": "fwdbwd", "name": "fwdbwd"},
    {"ph": "f", "id": 9, "pid": 1, "tid": 4, "ts": 1e6 + 5, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"},
    {"ph": "s", "id": 9, "pid": 1, "tid": 1, "ts": 1e6 + 1, "cat": "ac2g", "name": "ac2g"},
    {"name": "process_name", "ph": "M", "ts": 5, "pid": "x", "tid": [], "args": {"name": "\\ud83d"}},
    {"ph": "i", "s": "g", "pid": "Traces", "tid": "T", "name": "Iteration Start", "ts": 1e300},
]  # fmt: skip


@pytest.mark.parametrize("how", [{}, {"indent": 2}, {"separators": (",", ":")}], ids=["usual", "wide", "tight"])
def test_every_kind_of_event_is_taken(scanner, how):
    text = listed(EVENTS[:-2], **how)
    assert scanned_alike(scanner, text)
    found = scanner.scan(memory_of(text))
    assert [len(group["start"]) for group in (found.host,)] == [7] and found.device["kind"].tolist() == [0, 1, 2, 3]
    assert found.arrows["begins"].tolist() == [1, 0]
    assert (found.device["device"].tolist()[-1], found.device["stream"].tolist()[-1]) == (EVENTS[11]["pid"], 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "größer"}, {"name": "a\nb"}, {"name": 3}, {"tid": "thread 1"}, {"tid": 1.5}, {"ts": "1"}, {"ts": None},
        {"ts": 1e300}, {"ph": "XX"}, {"ph": "?"}, {"cat": None}, {"args": []}, {"args": {"Sequence number": "3"}},
        {"args": {"Sequence number": 2**62 + 1}}, {"args": {"Module Hierarchy": "A/B"}}, {"args": {"correlation": 1.0}},
        {"args": {"Collective name": "allreduce"}}, {"args": {"size": "4"}}, {"args": {"bytes": -1}},
        {"args": {"device": "0"}}, {"args": {"x": [[[1]] * 2] * 40, "y": "\\u0041"}, "pid": True},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_unusual_is_left_to_the_decoder(scanner, changed):
    assert scanned_alike(scanner, listed(EVENTS[:2]))
    assert not scanned_alike(scanner, listed([EVENTS[0], {**EVENTS[1], **changed}]))


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[", b"[]", b"{}", b"[1]", b"[{}]", b'[{"ph":"X"}', b'[{"ph":"X"},]', b'[{"ph":"X",}]', b'[{"ph":"X"}] x',
        b'[{"ph":"X","ts":01}]', b'[{"ph":"X","ts":1.}]', b'[{"ph":"X","ts":.5}]', b'[{"ph":"X","ts":+1}]',
        b'[{"ph":"X","x":1e}]', b'[{"ph":"X","x":tru}]', b'[{"ph":"X","x":"\x01"}]', b'[{"ph":"X","x":"\\x"}]',
        b'[{"ph":"X","x":' + b"[" * 40 + b"]" * 40 + b"}]", b'[{"ph":"X" "x":1}]', b'[{"ph":"X","x":NaN}]',
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_list_of_events_is_never_taken(scanner, text):
    assert scanner.scan(memory_of(text)) is None


def test_of_a_key_given_twice_the_last_counts(scanner):
    text = (
        b'[{"ph":"X","cat":"x","cat":"cpu_op","name":"a","name":"b","ts":1,"ts":2,"args":{"correlation":7},"args":{}}]'
    )
    assert scanned_alike(scanner, text)
    assert scanner.scan(memory_of(text)).names() == ["b"]
    for wrong in (b'"name":1', b'"ts":"1"', b'"args":{"bytes":"x"}', b'"pid":[]', b'"ph":"X"'):
        assert not scanned_alike(scanner, text[:-2] + b"," + wrong + b"}]")
        assert not scanned_alike(scanner, b"[{" + wrong + b"," + text[2:])


def test_times_are_the_nearest_doubles(scanner):
    rng = random.Random(5)
    texts = [f"{rng.randrange(10**whole)}.{rng.randrange(10**after):0{after}d}"
             for whole in (1, 5, 13, 15, 16) for after in (1, 2, 3) for _ in range(400)]  # fmt: skip
    texts += ["9007199254740993", "9007199254740993.0", "9007199254740992.5", "9007199254740993.5", "0", "-0.5", "0.1",
              "1844674407370955161", "999999999999999999.9", "1700000000000000.125", "4503599627370497.5"]  # fmt: skip
    events = ",".join(f'{{"ph":"X","cat":"cpu_op","name":"a","ts":{text}}}' for text in texts)
    found = scanner.scan(memory_of(f"[{events}]".encode()))
    assert found.host["start"].tolist() == [float(text) for text in texts]
    assert scanner.scan(memory_of(b'[{"ph":"X","cat":"cpu_op","ts":12345678901234567890}]')) is None


def test_many_threads_and_many_events(scanner):
    few = [event("cpu_op", f"op {i % 97}", i, i + 1, tid=i % 200) for i in range(5000)]
    assert scanned_alike(scanner, listed(few))
    many = [event("cpu_op", "op", i, i + 1, tid=i) for i in range(1000)]
    assert not scanned_alike(scanner, listed(many))
    assert scanned_alike(scanner, listed(few[:10]))


def test_a_piece_beyond_all_measure_is_left_to_the_decoder(monkeypatch, scanner):
    text = listed(EVENTS[:3])
    monkeypatch.setattr(scanning, "_LARGEST", len(text) - 1)
    assert not scanned_alike(scanner, text)


NUMBER = re.compile(rb"-?\d[\d.]*")


def damaged(text: bytes, rng: random.Random) -> bytes:
    """`text` with a few bytes, a value or a stretch of it changed."""
    data, kind, at = bytearray(text), rng.randrange(6), rng.randrange(len(text))
    if kind == 0:
        data[at] = rng.randrange(256)
    elif kind == 1:
        data[at] = rng.choice(b'"{}[]:,\\ 0-.eE')
    elif kind == 2:
        del data[at : at + rng.choice((1, 2, 30))]
    elif kind == 3:
        start = rng.randrange(len(text))
        data[at:at] = text[start : start + rng.choice((1, 5, 60))]
    else:
        found = rng.choice(list(NUMBER.finditer(text)))
        new = rng.choice((*STRANGE, "1.5", "-3", "null", '"7"', "[1]", "{}", "1e3", "4611686018427387905", "0.25"))
        data[found.start() : found.end()] = new.encode()
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_left_to_the_decoder_or_read_alike(scanner, seed):
    rng, taken = random.Random(seed), 0
    text = listed(EVENTS[:-2], indent=rng.choice((None, 1)))
    for _ in range(700):
        taken += scanned_alike(scanner, damaged(text, rng))
    assert 50 < taken < 650  # both happen


@pytest.mark.parametrize("seed", range(2))
def test_a_damaged_real_piece(monkeypatch, scanner, seed):
    monkeypatch.setattr(stream, "PIECE", 1 << 13)
    rng = random.Random(seed)
    pieces = [bytes(piece) for name in REAL[:8] for piece in list(map(bytes, stream.Pieces(FIXTURES / name)))[:6]]
    assert sum(scanned_alike(scanner, damaged(rng.choice(pieces), rng)) for _ in range(200)) > 10


@pytest.fixture
def counting(monkeypatch, scanner):
    """Scanning of files of any size; the list gets True for a piece that was scanned, False for one that was not."""
    said: list[bool] = []
    real = Scanner.scan

    def scan(self: Scanner, text: memoryview) -> Scanned | None:
        found = real(self, text)
        said.append(found is not None)
        return found

    monkeypatch.setattr(scanning, "WORTH", 0)
    monkeypatch.setattr(Scanner, "scan", scan)
    return said


def test_a_table_is_the_same_either_way(monkeypatch, counting, tmp_path):
    monkeypatch.setattr(stream, "PIECE", 1 << 12)
    events = [mark(f"ProfilerStep#{i}", 1000 * i, 1000 * i + 900) for i in range(8)]
    events += [op("aten::mm", 9 * i, 9 * i + 8, [[4, i % 7 + 1], [i % 7 + 1, 2]]) for i in range(800)]
    events[400] = {**events[400], "name": "größer"}  # one piece is decoded
    path = write(tmp_path / "t.json", sorted(events, key=lambda e: e["ts"]))
    scanned = read_trace(path)
    assert counting.count(True) > 10 and counting.count(False) == 1
    monkeypatch.setattr(scanning, "WORTH", 1 << 30)
    decoded = read_trace(path)
    assert len(counting) == counting.count(True) + 1
    pd.testing.assert_frame_equal(scanned.frame, decoded.frame)
    assert (scanned.facts, scanned.warnings) == (decoded.facts, decoded.warnings)


def no_compiler(source: Path) -> Path:
    raise Unavailable("There is no C compiler on this machine.")


@pytest.mark.parametrize("none", [no_compiler, lambda source: source], ids=["no compiler", "no library"])
def test_without_a_compiler_the_decoder_reads_all(monkeypatch, tmp_path, none):
    monkeypatch.setattr(scanning, "WORTH", 0)
    monkeypatch.setattr(scanning, "build_library", none)
    scanning._library.cache_clear()
    try:
        path = write(tmp_path / "t.json", [op("aten::mm", 0, 9, [[4, 8], [8, 2]])])
        assert scanning.scanner_for(path) is None
        assert len(read_trace(path)) == 1
    finally:
        scanning._library.cache_clear()


def test_a_file_that_is_not_there_has_no_scanner(tmp_path):
    assert scanning.scanner_for(tmp_path / "nothing.json") is None
    with pytest.raises(PerfkitError):
        read_trace(tmp_path / "nothing.json")
