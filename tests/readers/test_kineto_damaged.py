"""Damaged traces: a sentence or a table, never a traceback, never a hang, never much memory."""

from __future__ import annotations

import gzip
import json
import random
import time
import tracemalloc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit.errors import InputError, PerfkitError
from perfkit.readers import read
from perfkit.table import KernelTable
from tests.support.readers.traces import event, mark, op, write

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kineto"
SOURCES = ("eager-stack", "compiled", "graph", "streams", "nccl-rank0")

# Values that a field may turn into. NaN and infinity are not JSON, but other writers emit them.
WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.5, -1e300, 1e308, float("nan"), float("inf"), "", "x",
    "\x00<b>\x1b[31m", "n" * 10_000, [], [[]], [None, "a", -3], [2**70], {}, {"a": {"b": [1]}}, [1, 2], "(64, 1)",
)  # fmt: skip


@cache
def text(name: str) -> bytes:
    return gzip.decompress((FIXTURES / f"{name}.json.gz").read_bytes())


@cache
def trace(name: str) -> str:
    """The trace, its first 200 events of each kind."""
    whole = json.loads(text(name))
    count: dict[Any, int] = {}
    kept = []
    for e in whole["traceEvents"]:
        count[e.get("cat")] = count.get(e.get("cat"), 0) + 1
        if count[e.get("cat")] <= 200:
            kept.append(e)
    return json.dumps({**whole, "traceEvents": kept})


def mutations(count: int, seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    for i in range(count):
        yield _MUTATIONS[i % len(_MUTATIONS)](rng, rng.choice(SOURCES))


def _cut(rng: random.Random, name: str) -> bytes:
    return text(name)[: rng.randrange(len(text(name)))]


def _flipped(rng: random.Random, name: str) -> bytes:
    data = bytearray(text(name))
    for _ in range(rng.randrange(1, 20)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _zipped(rng: random.Random, name: str) -> bytes:
    """Damage inside the compression: flips (the checksum too), or the end missing."""
    data = bytearray(gzip.compress(text(name), 1, mtime=0))
    if rng.random() < 0.5:
        return bytes(data[: rng.randrange(2, len(data))])
    data[rng.randrange(2, len(data)) if rng.random() < 0.7 else -rng.randrange(1, 9)] ^= 1 << rng.randrange(8)
    return bytes(data)


def _retyped(rng: random.Random, name: str) -> bytes:
    """Wrong values in some fields of some events."""
    whole = json.loads(trace(name))
    for e in rng.sample(whole["traceEvents"], 12):
        holder = e["args"] if rng.random() < 0.6 and isinstance(e.get("args"), dict) and e["args"] else e
        holder[rng.choice(list(holder))] = rng.choice(WRONG)
    return json.dumps(whole).encode()


def _restructured(rng: random.Random, name: str) -> bytes:
    """Events lost, doubled, moved in time, of another kind, without arguments; top level fields of a wrong type."""
    whole = json.loads(trace(name))
    events = whole["traceEvents"]
    for _ in range(30):
        i = rng.randrange(len(events))
        e = events[i]
        change = rng.randrange(6)
        if change == 0:
            del events[i]
        elif change == 1:
            events.append({**e, "ts": rng.uniform(-1e15, 1e15)})
        elif change == 2:
            e["dur"] = rng.choice([-5, 0, 1e18, 1e-9])
        elif change == 3:
            e["cat"] = rng.choice(
                ["kernel", "cpu_op", "cuda_runtime", "python_function", "user_annotation", "gpu_memcpy"]
            )
        elif change == 4:
            e.pop("args", None)
        else:
            e["ph"] = rng.choice(["X", "s", "f", "B", "?", 3])
    if rng.random() < 0.3:
        whole[rng.choice(["deviceProperties", "schemaVersion"])] = rng.choice(WRONG)
    return json.dumps(rng.choice([whole, events])).encode()


def _nested(rng: random.Random, name: str) -> bytes:
    """Very deep JSON in the place of an argument."""
    depth = rng.choice([50, 900, 50_000])
    deep = rng.choice(["[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, "[" * depth])
    before, at, after = trace(name).partition('"args": {')
    return (before + at + f'"deep": {deep}, "Input Dims": {deep}, ' + after).encode()


_MUTATIONS = (_cut, _flipped, _zipped, _retyped, _restructured, _nested)


def check(folder: Path, data: bytes) -> None:
    path = folder / "t.json"
    path.write_bytes(data)
    started = time.monotonic()
    try:
        found = read(path)
    except PerfkitError:
        pass
    else:
        assert isinstance(found, KernelTable)
        json.dumps(found.facts, allow_nan=False)
    assert time.monotonic() - started < 30  # a hang, not a speed


def test_damage_gets_a_sentence_or_a_table(tmp_path: Path) -> None:
    for data in mutations(60, seed=1):
        check(tmp_path, data)


@pytest.mark.slow
@pytest.mark.full
def test_2000_mutations(tmp_path: Path) -> None:
    for data in mutations(2000, seed=2):
        check(tmp_path, data)


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize(
    "name", ["dims", "grid", "stream", "correlation", "Sequence number", "bytes", "Collective name"]
)
def test_a_wrong_value_in_any_argument(tmp_path: Path, name: str, value: Any) -> None:
    field = {"dims": "Input Dims"}.get(name, name)
    events = [
        mark("ProfilerStep#1", 0, 100),
        op("aten::mm", 10, 30, [[4, 2], [2, 8]], seq=3, **{field: value}),
        event("cuda_runtime", "cudaLaunchKernel", 15, 20, correlation=7),
        event("kernel", "k", 25, 65, pid=0, tid=7, device=0, **({"stream": 7, "correlation": 7} | {field: value})),
    ]
    check(tmp_path, json.dumps({"traceEvents": events}).encode())


def test_names_of_any_length_and_content(tmp_path: Path) -> None:
    names = ["n" * 10_000, "<script>alert(1)</script>", "\x1b[31mred", "\u202eabc", "", "a" * 5_000 + "<" * 5_000]
    events = [mark(n, i, i + 1) for i, n in enumerate(names)] + [op(n, i, i + 1, [[4]]) for i, n in enumerate(names)]
    events += [event("kernel", n, i, i + 1, pid=0, tid=7, stream=7, correlation=i) for i, n in enumerate(names)]
    found = read(write(tmp_path / "t.json", events))
    assert isinstance(found, KernelTable) and len(found) == len(names)


@pytest.mark.parametrize("content", [b"\0", pytest.param(b" ", marks=pytest.mark.full), b'{"ph":"X"},'])
def test_a_gzip_bomb_is_refused_in_bounded_memory(tmp_path: Path, content: bytes) -> None:
    """2 GB that shrink to 2 MB."""
    block = gzip.compress((content * (1 << 20))[: 1 << 22], 9)
    opening = gzip.compress(b'{"traceEvents": [\n{"ph": "X", "name": "a"},\n{"ph": "X"},\n')
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(opening + block * 500)
    tracemalloc.start()
    with pytest.raises(InputError) as error:
        read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "grows more than" in str(error.value) or "not a torch.profiler trace" in str(error.value)
    assert peak < 800e6


def test_a_damaged_checksum_is_told(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(text("graph"), mtime=0))
    data[-6] ^= 1
    (tmp_path / "t.json.gz").write_bytes(data)
    with pytest.raises(InputError, match="compressed content is broken"):
        read(tmp_path / "t.json.gz")


def test_members_and_padding_of_gzip(tmp_path: Path) -> None:
    whole = text("graph")
    half = len(whole) // 2
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(whole[:half]) + gzip.compress(whole[half:]) + b"\0" * 100)
    found = read(tmp_path / "t.json.gz")
    assert isinstance(found, KernelTable) and len(found) == 28


def test_any_layout_of_the_json_gives_the_same_table(tmp_path: Path) -> None:
    """Pieces are cut at the borders of events; text that only looks like one does not mislead."""
    whole = json.loads(text("eager-stack"))
    whole["traceEvents"][0]["args"]["note"] = '}, {"ph": "X"},\n  {\n    "ph": "X"'
    expected = read(FIXTURES / "eager-stack.json.gz")
    assert isinstance(expected, KernelTable)
    layouts = {
        "minified": json.dumps(whole, separators=(",", ":")),
        "one line": json.dumps(whole),
        "indented": json.dumps(whole, indent=1),
        "bare": json.dumps(whole["traceEvents"], indent=2),
        "sorted": json.dumps(whole, sort_keys=True),
    }
    for name, content in layouts.items():
        path = tmp_path / "t.json"
        path.write_text(content)
        found = read(path)
        assert isinstance(found, KernelTable)
        assert found.frame.equals(expected.frame), name


def test_many_pieces_give_the_table_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfkit.readers.kineto.decode import stream as kineto_stream

    expected = read(FIXTURES / "nccl-rank0.json.gz")
    for size in (500, 4096, 100_000):
        monkeypatch.setattr(kineto_stream, "PIECE", size)
        for name in ("t.json", "t.json.gz"):
            data = text("nccl-rank0")
            (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
            found = read(tmp_path / name)
            assert isinstance(found, KernelTable) and isinstance(expected, KernelTable)
            assert found.frame.equals(expected.frame)
            assert found.facts == expected.facts


def test_whole_numbers_up_to_64_bits_stay_exact(tmp_path: Path) -> None:
    from perfkit.table import build

    large = 2**62 + 1
    table = build({"name": ["a", "b"], "order": [0, 1], "registers": [large, None]})
    assert int(table.frame["registers"].iloc[0]) == large
    for broken in ([2**63, None], [0.5, None], ["x", None]):
        with pytest.raises(PerfkitError, match="registers"):
            build({"name": ["a", "b"], "order": [0, 1], "registers": broken})


def test_a_missing_file_gets_a_sentence(tmp_path: Path) -> None:
    from perfkit.readers.kineto.trace import read_trace

    with pytest.raises(InputError, match="does not exist"):
        read_trace(tmp_path / "nothing.json")


def launch(kernel: dict[str, Any]) -> list[dict[str, Any]]:
    """A runtime call inside an operator, and the kernel that it launches with these further arguments."""
    return [
        op("aten::relu", 0, 10, [[4, 4]]),
        event("cuda_runtime", "cudaLaunchKernel", 2, 4, correlation=7),
        event("kernel", "relu", 5, 9, pid=0, tid=7, **{"correlation": 7, "stream": 7, **kernel}),
    ]


@pytest.mark.parametrize("wrong", ["x", [], {}, True, None, -1])
def test_a_wrong_registers_leaves_the_kernel(tmp_path: Path, wrong: Any) -> None:
    shape = {"grid": [8, 1, 1], "block": [128, 1, 1], "registers per thread": wrong, "shared memory": 16}
    table = read(write(tmp_path / "t.json", launch({"device": 0, **shape})))
    assert isinstance(table, KernelTable)
    row = table.frame.iloc[0]
    assert (row["grid_x"], row["block_x"], row["shared_bytes"], row["operator"]) == (8, 128, 16.0, "aten::relu")
    assert row["registers"] is pd.NA


@pytest.mark.parametrize("wrong", ["x", [], [[1]], {}, {"a": 1}, True, None, -1, 0.5, 2**64])
def test_a_gpu_of_any_id_is_described_or_passed_over(tmp_path: Path, wrong: Any) -> None:
    properties = [{"id": wrong, "name": "lost"}, {"id": 0, "name": "NVIDIA T4", "numSms": 40}]
    table = read(write(tmp_path / "t.json", launch({"device": 0}), deviceProperties=properties))
    assert isinstance(table, KernelTable)
    assert "NVIDIA T4" in [gpu["name"] for gpu in table.facts["gpus"]]


def test_only_events_that_last_are_what_their_category_says(tmp_path: Path) -> None:
    others = [
        {"ph": "s", "cat": "cpu_op", "name": "aten::mm", "id": 1, "pid": 1, "tid": 1, "ts": 1e6},
        {"ph": "f", "cat": "kernel", "name": "gemm", "id": 1, "pid": 1, "tid": 1, "ts": 1e6},
        {"ph": "i", "cat": "cpu_op", "name": "aten::mm", "s": "g", "ts": 1e6},
        event("fwdbwd", "aten::mm", 0, 10),
        event("never heard of", "aten::mm", 0, 10),
    ]
    table = read(write(tmp_path / "t.json", [*launch({"device": 0}), *others]))
    assert isinstance(table, KernelTable)
    assert table.frame["name"].tolist() == ["relu"]
    assert not [w for w in table.warnings if "could not be read" in w]
