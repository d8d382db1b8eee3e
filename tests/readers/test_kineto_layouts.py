"""Any JSON text that means the same trace gives the same table: made traps, and traces at random layouts.

`test_kineto_samples.py` tries real traces of 20 thousand events.
"""

from __future__ import annotations

import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from perfkit.errors import InputError
from perfkit.readers.kineto.decode import pieces, stream, typed
from perfkit.readers.kineto.recorded import read_recorded
from perfkit.readers.kineto.trace import read_trace
from perfkit.table import KernelTable
from tests.support.readers.layouts import NESTED, TRAPS, Layout, layout, trapped
from tests.support.readers.traces import event, mark, op

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kineto"
SMALL = ("eager-stack", "compiled", "graph", "streams", "nccl-rank0")


def same(one: KernelTable, other: KernelTable) -> bool:
    return one.frame.equals(other.frame) and (one.facts, one.warnings) == (other.facts, other.warnings)


@cache
def loaded(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def check(path: Path, trace: dict[str, Any], expected: KernelTable, how: Layout, monkeypatch: Any) -> None:
    monkeypatch.setattr(stream, "PIECE", how.piece)
    path.write_bytes(how.write(trace))
    assert same(read_trace(path), expected), how


def plain(folder: Path, trace: Any) -> KernelTable:
    """The table of `trace` as `json.dump` writes it, read in one piece."""
    path = folder / "plain.json"
    path.write_text(json.dumps(trace))
    return read_trace(path)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(i, marks=pytest.mark.full) for i in range(2, 20))])
def test_a_small_trace_at_random_layouts(monkeypatch, tmp_path, name, seed):
    rng = random.Random(f"{name} {seed}")
    trace = trapped(loaded(FIXTURES / f"{name}.json.gz"), rng)
    how = layout(rng)
    check(tmp_path / "t.json", trace, plain(tmp_path, trace), how, monkeypatch)
    without = {"traceEvents": trace["traceEvents"]}
    (tmp_path / "t.json").write_bytes(how.write_list(without))
    assert same(read_trace(tmp_path / "t.json"), plain(tmp_path, without)), how


EVENTS = [mark("ProfilerStep#1", 0, 100), *(op(f"aten::op{i}", 10 * i, 10 * i + 9, [[4, i]]) for i in range(9))]


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\r\n", "\t:")])
@pytest.mark.parametrize("value", [*TRAPS, *NESTED], ids=str)
def test_traps_in_names_and_arguments_are_read_through(monkeypatch, tmp_path, value, separators):
    name = f"aten::{value if isinstance(value, str) else 'custom'}"
    events = [*EVENTS, *(op(name, 90 + i, 91 + i, [[4]], note=value) for i in range(5))]
    expected = plain(tmp_path, {"traceEvents": events})
    assert expected.frame["name"].tolist().count(name) == 5
    text = json.dumps({"note": value, "traceEvents": events, "end": value}, separators=separators)
    for size in (7, 64, 300, 1 << 19):
        monkeypatch.setattr(stream, "PIECE", size)
        assert same(read_trace(written(tmp_path / "t.json", text)), expected)


def test_pieces_stay_small_whatever_the_events_hold(monkeypatch, tmp_path):
    """Each event ends in what looks like borders, so that no guess is right; and one event follows another closely."""
    largest = 0
    real = typed._list

    def decoded(text: memoryview, found: Any) -> Any:
        nonlocal largest
        largest = max(largest, len(text))
        return real(text, found)

    monkeypatch.setattr(typed, "_list", decoded)
    monkeypatch.setattr(stream, "PIECE", 1 << 14)
    events = [
        op("aten::relu", 9 * i, 9 * i + 5, [[4]], nested=[{"a": 1}, {"b": "}, {"}, {"c": []}]) for i in range(4000)
    ]
    path = written(tmp_path / "t.json", json.dumps({"traceEvents": events}, separators=(",", ":")))
    assert len(read_trace(path)) == 4000 and path.stat().st_size > 40 * largest
    assert largest < 2 << 14


def test_an_event_larger_than_many_pieces(monkeypatch, tmp_path):
    large = op("custom", 95, 96, [[4]], note=[{"a": "},{" * 50, "b": [i]} for i in range(400)])
    expected = plain(tmp_path, {"traceEvents": [*EVENTS, large, *EVENTS]})
    monkeypatch.setattr(stream, "PIECE", 1000)
    assert same(
        read_trace(written(tmp_path / "t.json", json.dumps({"traceEvents": [*EVENTS, large, *EVENTS]}))), expected
    )


HEADS = (
    '{"a": {"traceEvents": [1, 2]}, "traceEvents": [', '{"a": "traceEvents", "b": [], "traceEvents" \n:\r\n [',
    '{"\\"traceEvents": [{"ph": "X"}, {"ph": "X"}], "trace\\u0045vents":[',
    '{"x": [[{"traceEvents": []}]], "traceEvents": [',
    '{"traceEvents\\\\": [], "traceEventsx": [7], "xtraceEvents": [7], "traceEvents":[', "\ufeff [",
)  # fmt: skip


@pytest.mark.parametrize("head", HEADS)
def test_the_list_of_events_is_found_where_it_is(monkeypatch, tmp_path, head):
    body = json.dumps(EVENTS)[1:]
    tail = "\r\n" if head.endswith(" [") and "{" not in head else ', "b": {"traceEvents": [3]}}\n'
    expected = plain(tmp_path, {"traceEvents": EVENTS})
    for size in (5, 100, 1 << 19):
        monkeypatch.setattr(stream, "PIECE", size)
        assert same(read_trace(written(tmp_path / "t.json", head + body + tail)), expected)


@pytest.mark.parametrize("at", ["before", "behind", "between"])
def test_devices_are_read_on_either_side_of_the_events(tmp_path, at):
    launch = event("cuda_runtime", "cudaLaunchKernel", 3, 4, correlation=7)
    kernel = event("kernel", "k", 5, 9, pid=0, tid=7, device=0, stream=7, correlation=7)
    properties = {"deviceProperties": [{"id": 0, "name": "NVIDIA T4", "numSms": 40, "more": [{"a": [[]]}]}]}
    events = {"traceEvents": [*EVENTS, launch, kernel]}
    whole = {"before": {**properties, **events}, "behind": {**events, **properties}}.get(
        at, {"x": [{}], **events, **properties}
    )
    assert "NVIDIA T4" in json.dumps(read_trace(written(tmp_path / "t.json", json.dumps(whole))).facts)


DAMAGED = {
    "an open list": '{"traceEvents": [{"ph": "X"}, {"ph": "X"}',
    "an open object": '{"traceEvents": [{"ph": "X"}]',
    "a comma before the end": '{"traceEvents": [{"ph": "X"}, {"ph": "X"}, ]}',
    "two commas": '{"traceEvents": [{"ph": "X"},, {"ph": "X"}]}',
    "another bracket": '{"traceEvents": [{"ph": "X"}, {"ph": "X"}}, {"ph": "X"}]}',
    "text after a list": '[{"ph": "X"}, {"ph": "X"}] 1',
    "a comma after a list": '[{"ph": "X"}, {"ph": "X"}], {"ph": "X"}',
    "text after an object": '{"traceEvents": [{"ph": "X"}]} {',
    "two lists": '{"traceEvents": [{"ph": "X"}], "traceEvents": [{"ph": "X"}]}',
    "an invalid head": '{"a" 1, "traceEvents": [{"ph": "X"}]}',
    "an open string": '{"traceEvents": [{"ph": "X"}, {"ph": "X}, {"ph": "X"}, {"ph": "X"}]}',
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_told_wherever_a_piece_ends(monkeypatch, tmp_path, text):
    path = written(tmp_path / "t.json", text)
    for size in range(1, len(text) + 2):
        monkeypatch.setattr(stream, "PIECE", size)
        with pytest.raises(InputError, match=r"is not a torch\.profiler trace, or it is damaged"):
            read_trace(path)
        with pytest.raises(InputError, match=r"is not a torch\.profiler trace, or it is damaged"):
            read_recorded(path)


@pytest.mark.parametrize("text", ["{}", '{"traceEvents": 3}', '{"a": [{"traceEvents": []}]}', '"traceEvents"', "17"])
def test_json_without_a_list_of_events_is_told(tmp_path, text):
    for read in (read_trace, read_recorded):
        with pytest.raises(InputError, match="it has no list of events"):
            read(written(tmp_path / "t.json", text))


def test_an_open_string_is_told_soon(monkeypatch, tmp_path):
    """The rest seems to be inside strings although it is outside, so no event ends; it is not gathered in vain."""
    monkeypatch.setattr(pieces, "_SUSPICIOUS", 1 << 16)
    body = ",".join(['{"ph": "X", "name": "a", "cat": "cpu_op", "ts": 1}'] * 100_000)
    path = written(tmp_path / "t.json", '{"traceEvents": [{"ph": "X, "name": "b"}, ' + body + "]}")
    taken = 0
    real = pieces._Text.append

    def append(self: Any, block: bytes) -> None:
        nonlocal taken
        taken += len(block)
        real(self, block)

    monkeypatch.setattr(pieces._Text, "append", append)
    monkeypatch.setattr(stream, "PIECE", 1 << 14)
    with pytest.raises(InputError, match="damaged"):
        read_trace(path)
    assert taken < 1 << 18


@pytest.mark.parametrize("text", ['{"traceEvents": [{"ph": "X", "a": "', '{"a": "', '{"traceEvents": [], "a": "'])
def test_text_without_an_end_is_refused(monkeypatch, tmp_path, text):
    monkeypatch.setattr(pieces, "LONGEST", 1 << 16)
    monkeypatch.setattr(stream, "PIECE", 1 << 12)
    with pytest.raises(InputError, match="it is not a trace"):
        read_trace(written(tmp_path / "t.json", text + "x" * (1 << 17)))
