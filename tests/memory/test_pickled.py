"""Pickles that are no snapshots: nothing in them runs, and nothing in them takes time or memory without a bound."""

from __future__ import annotations

import os
import pickle
import random
import resource
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from perfkit.cli import main
from perfkit.errors import InputError
from perfkit.memory.analyse import analyse
from perfkit.readers.snapshot.pickled import plain_objects
from perfkit.readers.snapshot.read import read_snapshot
from perfkit.render.pages import memory
from tests.support.allocator import Allocator, training
from tests.support.readers.mutations import of_bytes
from tests.support.sweeps import examples

START, KEYS = b"\x80\x04", b"\x8c\x08segments\x94\x8c\x0ddevice_traces\x94"


class _Runs:
    """Pickled, it makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def _codes(marker: Path) -> dict[str, bytes]:
    """Pickles that would make `marker`, each by other opcodes."""
    name = str(marker).encode()
    text = b"\x8c" + bytes([len(name)]) + name
    many = pickle.dumps({"segments": [], "device_traces": [[_Runs(marker)]]})
    return {
        "REDUCE": many,
        "in a segment": pickle.dumps({"segments": [{"blocks": [], "device": _Runs(marker)}], "device_traces": []}),
        "protocol 2": pickle.dumps({"segments": [_Runs(marker)], "device_traces": []}, protocol=2),
        "GLOBAL": START + KEYS + b"cos\nmkdir\n(" + text + b"tR.",
        "INST": START + KEYS + b"(" + text + b"ios\nmkdir\n.",
        "OBJ": START + KEYS + b"(cos\nmkdir\n" + text + b"o.",
        "NEWOBJ": START + KEYS + b"cos\nmkdir\n" + text + b"\x85\x81.",
        "EXT1": START + KEYS + b"\x82\x01.",
        "PERSID": START + KEYS + b"P0\n.",
        "BINPERSID": START + KEYS + b"NQ.",
        "BUILD": START + KEYS + b"}}b.",
        "behind a stop": START + KEYS + b"}0.",
        "buffer": b"\x80\x05" + KEYS + b"\x97.",
    }


@pytest.mark.parametrize("name", list(_codes(Path())))
def test_what_a_pickle_would_run_is_never_run(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = tmp_path / "marker"
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(_codes(marker)[name])
    with pytest.raises(SystemExit) as ended:
        main(["report", str(path)])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert "holds more than plain data (the opcode " in said.err
    assert "Traceback" not in said.err
    assert not marker.exists()
    pickle.loads(_codes(tmp_path / "proof")["REDUCE"])
    assert (tmp_path / "proof").exists(), "these pickles do run where they are loaded"


def _nested() -> bytes:
    """Twenty-eight lists, each of ten times the one before: 10 to the 28th elements for who walks them all."""
    parts = [b"]\x94"]
    for number in range(28):
        parts.append(b"]\x94(" + b"h" + bytes([number]) + (b"h" + bytes([number])) * 9 + b"e")
    return b"".join(parts)


BOMBS = {
    "a tuple as a key that hashes for ever": START + KEYS + b"}K\x01K\x01\x86\x94" + b"2\x86" * 40 + b"Ns.",
    "nested lists": START + b"}(\x8c\x08segments" + _nested() + b"\x8c\x0ddevice_traces]u.",
    "a trace that comes a million times": START + b"}(\x8c\x08segments]\x8c\x0ddevice_traces](](}\x94" + b"h\x00" * 900
    + b"e\x94" + b"h\x01" * 900 + b"eu.",
    "a memo of gigabytes": START + b"}(\x8c\x08segments]r\xff\xff\xff\x7f\x8c\x0ddevice_traces]u.",
    "a text of exabytes": START + b"\x8d" + struct.pack("<Q", 1 << 60) + b"segments.",
    "a frame of exabytes": START + b"\x95" + struct.pack("<Q", 1 << 62) + b"}\x8c\x08segments]s.",
    "a number of a megabyte": START + b"}(\x8c\x08segmentsK\x01\x8b" + struct.pack("<I", 1 << 20)
    + bytes(1 << 20) + b"u.",
    "a depth of a million": START + b"}(\x8c\x08segments" + b"]" * 1_000_000 + b"a" * 999_999
    + b"\x8c\x0ddevice_traces]u.",
}  # fmt: skip


@pytest.mark.parametrize("name", list(BOMBS))
def test_time_and_memory_are_bounded(name: str, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(BOMBS[name])
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(InputError):
        read_snapshot(path)
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000


def test_plain_data_comes_as_it_was_written(tmp_path: Path) -> None:
    plain = {"a": [1, -1, 1 << 40, 0.5, None, True, "é" * 300, (0, 0), (1, 2, 3)], "b": {"c": {}, "d": [], "e": ()}}
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        path = tmp_path / f"{protocol}.pickle"
        path.write_bytes(pickle.dumps(plain, protocol))
        assert plain_objects(path) == plain


def test_mutations_end_in_a_report_or_a_sentence(tmp_path: Path) -> None:
    allocator = Allocator(native=True)
    training(allocator, fails=True)
    whole = pickle.dumps(allocator.snapshot())
    path, r, began, sentences = tmp_path / "snapshot.pickle", random.Random(57), time.process_time(), []
    for _ in range(examples(300, 3000)):
        kind, damaged = of_bytes(whole, r)
        path.write_bytes(damaged)
        try:
            memory.page(analyse([read_snapshot(path)], "damaged"))
        except InputError as error:
            sentences.append((kind, str(error)))
    assert len(sentences) > 100
    assert not [one for one in sentences if not one[1].startswith(str(path))]
    assert time.process_time() - began < examples(60, 600)
