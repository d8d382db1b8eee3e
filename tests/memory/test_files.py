"""Snapshots that torch 2.11 wrote on a GPU, as they are and as other versions would have written them.

In `tests/fixtures/snapshots/` a small Llama trains; `python` has the frames of Python, `native` those of C++ too. Paths
are shortened, all else is as it was.
"""

from __future__ import annotations

import copy
import functools
import gzip
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit.memory.analyse import analyse
from perfkit.memory.results import DeviceMemory
from perfkit.readers.snapshot.read import read_snapshot
from tests.support.sweeps import rest

FOLDER = Path(__file__).parents[1] / "fixtures" / "snapshots"
Plain = dict[str, Any]


@functools.cache
def content(name: str) -> Plain:
    """The plain objects of a file."""
    found: Plain = pickle.loads(gzip.decompress((FOLDER / f"{name}.pickle.gz").read_bytes()))
    return found


def analysed(plain: Plain, folder: Path, protocol: int = pickle.DEFAULT_PROTOCOL) -> DeviceMemory:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(plain, protocol))
    (device,) = analyse([read_snapshot(path)], "test").devices
    return device


def kinds(device: DeviceMemory) -> dict[str, int]:
    return {part.kind: part.bytes for part in device.peak.parts}


def by_hand(plain: Plain) -> tuple[int, int, int]:
    """Reserved and allocated bytes at the end, and the peak: backwards from the end, without anything of perfkit."""
    live = {b["address"]: b["size"] for s in plain["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
    now = end = peak = sum(live.values())
    for event in reversed(plain["device_traces"][0]):
        if event["action"] == "free_requested":
            live[event["addr"]] = -(-event["size"] // 512) * 512
            now += live[event["addr"]]
        elif event["action"] == "alloc":
            now -= live.pop(event["addr"])
        peak = max(peak, now)
    return sum(segment["total_size"] for segment in plain["segments"]), end, peak


@pytest.mark.parametrize("name", ["python", rest("native")])
def test_a_file_of_a_gpu_has_the_figures_of_plain_python(name: str, tmp_path: Path) -> None:
    found = analysed(content(name), tmp_path)
    assert found.end is not None
    assert (found.end.reserved, found.end.allocated, found.peak.allocated) == by_hand(content(name))
    assert sum(kinds(found).values()) == found.peak.allocated == sum(owner.bytes for owner in found.peak.owners)
    assert {"parameters", "optimizer state", "gradients", "activations"} <= {*kinds(found)}
    assert kinds(found)["optimizer state"] == pytest.approx(2 * kinds(found)["parameters"], rel=0.01)
    assert any(owner.file.endswith("small.py") for owner in found.peak.owners)


def _as_2_1(plain: Plain) -> Plain:
    """Without times, settings and annotations."""
    for event in plain["device_traces"][0]:
        for name in ("time_us", "compile_context", "user_metadata"):
            del event[name]
    return {name: plain[name] for name in ("segments", "device_traces")}


def _as_2_2(plain: Plain) -> Plain:
    """With times and settings."""
    for event in plain["device_traces"][0]:
        del event["compile_context"], event["user_metadata"]
    del plain["external_annotations"], plain["allocator_settings"]["graph_capture_record_stream_reuse"]
    return plain


def _as_2_5(plain: Plain) -> Plain:
    """With annotations."""
    for event in plain["device_traces"][0]:
        del event["user_metadata"], event["compile_context"]
    return plain


def _as_2_7(plain: Plain) -> Plain:
    """With the region of compiled code."""
    for event in plain["device_traces"][0]:
        event["compile_context"] = "Torch-Compiled Region: 0/0"
        del event["user_metadata"]
    return plain


def _as_2_15(plain: Plain) -> Plain:
    """With the pool of each event, what the user noted, and the nodes of compiled graphs."""
    for event in plain["device_traces"][0]:
        event |= {"user_metadata": "step 3", "pool_id": (0, 0)}
        event["frames"] = [
            frame | {"fx_node_op": "call_function", "fx_node_name": "mm", "fx_original_trace": "File …"}
            for frame in event["frames"]
        ]
    return plain


def _by_cpp(plain: Plain) -> Plain:
    """As `torch::cuda::_memory_snapshot_pickled` does: an event that nothing is known of has no frames at all."""
    for event in plain["device_traces"][0]:
        if not event["frames"]:
            del event["frames"]
    return plain


@pytest.mark.parametrize(
    ("form", "protocol"),
    [(_as_2_1, 4), (_by_cpp, 2), rest(_as_2_2, 4), rest(_as_2_5, 4), rest(_as_2_7, 4), rest(_as_2_15, 5)],
)
def test_every_version_reads_alike(form: Callable[[Plain], Plain], protocol: int, tmp_path: Path) -> None:
    known = analysed(content("python"), tmp_path)
    found = analysed(form(copy.deepcopy(content("python"))), tmp_path, protocol)
    assert (kinds(found), found.peak.allocated) == (kinds(known), known.peak.allocated)
    assert found.end is not None and known.end is not None
    assert (found.end.allocated, found.end.reserved) == (known.end.allocated, known.end.reserved)
