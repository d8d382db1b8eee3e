"""Nesting of events as columns, against nesting them one by one; decompression by isal, against zlib."""

from __future__ import annotations

import copy
import gzip
import importlib
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from perfkit.errors import InputError
from perfkit.readers.kineto.decode import arrange, stream
from perfkit.readers.kineto.decode.events import OPERATOR, HostEvents


def _generated(rng: random.Random) -> HostEvents:
    """Sorted events of one to three threads; many outlast those around them."""
    count, span = rng.randint(0, 60), rng.choice([6, 30, 200])
    lane = np.array(sorted(rng.randrange(3) for _ in range(count)), np.int32)
    start = np.array([rng.randrange(span) for _ in range(count)], np.int64)
    end = start + np.array([rng.randrange(rng.choice([1, 3, span])) for _ in range(count)], np.int64)
    category = np.array([rng.randrange(5) for _ in range(count)], np.int8)
    order = np.lexsort((category == OPERATOR, -end, start, lane))
    none, number = np.full(count, -1, np.int32), np.arange(count, dtype=np.int32)
    return HostEvents(
        names=[], name=number, category=category[order], lane=lane[order], lanes=[], start=start[order], end=end[order],
        sequence=none, forward_thread=none, correlation=none, call=none, calls=[], hierarchy=none, hierarchies=[],
        stack=none, stacks=[],
        message=none, messages=[],
    )  # fmt: skip


@pytest.mark.parametrize(("part", "rounds"), [(1 << 18, 100), (4, 100), (1 << 18, 2)])
def test_columns_nest_as_single_events_do(monkeypatch: pytest.MonkeyPatch, part: int, rounds: int) -> None:
    monkeypatch.setattr(arrange, "_PART", part)
    monkeypatch.setattr(arrange, "_ROUNDS", rounds)
    rng, whole = random.Random(part + rounds), 0
    for _ in range(1500):
        fast = _generated(rng)
        slow = copy.deepcopy(fast)
        before = fast.end.copy()
        arrange._nest(fast)
        parent = arrange._cut(slow)
        assert (fast.parent == parent).all() and (fast.end == slow.end).all() and fast.clipped == slow.clipped
        whole += bool(len(before) > 3 and (fast.end == before).all())
    assert whole > 50  # both ways were taken


@pytest.mark.parametrize("damage", ["none", "checksum", "cut", "middle"])
def test_isal_and_zlib_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    pytest.importorskip("isal")
    data = bytearray(gzip.compress(b'{"traceEvents": []}' * 9000) + gzip.compress(b"second member") + b"\0" * 20)
    if damage == "checksum":
        data[-26] ^= 1
    elif damage == "cut":
        del data[-30:]
    elif damage == "middle":
        data[40:44] = b"\xff\x00\xff\x00"
    path = tmp_path / "t.json.gz"
    path.write_bytes(data)
    found = []
    try:
        for without in (False, True):
            if without:
                monkeypatch.setitem(sys.modules, "isal", None)
            module = importlib.reload(stream)
            assert module.inflating.__name__ == ("zlib" if without else "isal.isal_zlib")
            try:
                found.append(b"".join(module.blocks(path)))
            except InputError as error:
                found.append(str(error))
    finally:
        monkeypatch.undo()
        importlib.reload(stream)
    assert found[0] == found[1] and isinstance(found[0], bytes) == (damage == "none")
