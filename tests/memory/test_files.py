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


SURE = ("parameters", "optimizer state", "activations")


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


def _without(plain: Plain, *names: str, settings: tuple[str, ...] = ()) -> Plain:
    """Without some names of events and of the whole, and some settings."""
    for event in plain["device_traces"][0]:
        for name in names:
            event.pop(name, None)
    for name in settings:
        del plain["allocator_settings"][name]
    return {name: value for name, value in plain.items() if name not in names}


REUSE = ("graph_capture_record_stream_reuse",)  # the setting that torch 2.9 adds


def _as_2_1(plain: Plain) -> Plain:
    """Without times, settings and annotations."""
    return _without(_as_2_2(plain), "time_us")


def _as_2_2(plain: Plain) -> Plain:
    """With times."""
    return _without(_as_2_3(plain), "allocator_settings")


def _as_2_3(plain: Plain) -> Plain:
    """With settings, as 2.4 too."""
    return _without(_as_2_5(plain), "external_annotations")


def _as_2_5(plain: Plain) -> Plain:
    """With annotations, as 2.6 and 2.7 too."""
    return _without(_as_2_8(plain), "compile_context")


def _as_2_8(plain: Plain) -> Plain:
    """With the region of compiled code."""
    return _without(_as_2_9(plain), settings=REUSE)


def _as_2_9(plain: Plain) -> Plain:
    """With the setting of streams in graphs."""
    for event in plain["device_traces"][0]:
        event["compile_context"] = "Torch-Compiled Region: 0/0"
    return _without(plain, "user_metadata")


def _as_2_10(plain: Plain) -> Plain:
    """With what the user noted, and the nodes of compiled graphs that `augment_with_fx_traces` adds."""
    for event in plain["device_traces"][0]:
        event["user_metadata"] = "step 3"
        event["frames"] = [
            frame | {"fx_node_op": "call_function", "fx_node_name": "mm", "fx_original_trace": "File …"}
            for frame in event["frames"]
        ]
    return plain


def _as_2_12(plain: Plain) -> Plain:
    """With the pool of each event, as 2.13 too."""
    for event in plain["device_traces"][0]:
        event["pool_id"] = (0, 0)
    return plain


def _as_2_15(plain: Plain) -> Plain:
    """With notes on what is allocated, tags of the allocator, and the forward lines that a backward pass belongs to."""
    events = []
    for number, event in enumerate(_as_2_12(plain)["device_traces"][0]):
        event["forward_frames"] = ['  File "/home/u/small.py", line 3, in forward\n']
        events.append(event)
        if event["action"] == "alloc" and number % 3 == 0:
            events.append(event | {"action": "annotate", "internal_metadata": "prefix", "frames": []})
    return plain | {"device_traces": [events]}


def _by_cpp(plain: Plain) -> Plain:
    """As `torch::cuda::_memory_snapshot_pickled` does: an event that nothing is known of has no frames at all."""
    for event in plain["device_traces"][0]:
        if not event["frames"]:
            del event["frames"]
    return plain


def _on_windows(plain: Plain) -> Plain:
    """With the paths of Windows."""
    blocks = [block for segment in plain["segments"] for block in segment["blocks"]]
    for one in {
        id(frame): frame for each in (*blocks, *plain["device_traces"][0]) for frame in each["frames"]
    }.values():
        one["filename"] = "C:" + one["filename"].replace("/", "\\")
    return plain


def _seen_before(plain: Plain) -> Plain:
    """With the event of a snapshot after each tenth event, as a program that takes one at each step has."""
    events = []
    for number, event in enumerate(plain["device_traces"][0]):
        events.append(event)
        if number % 10 == 0:
            events.append(event | {"action": "snapshot", "addr": 0, "size": 0, "frames": []})
    return plain | {"device_traces": [events]}


def _skips(action: str) -> Callable[[Plain], Plain]:
    """As `_record_memory_history(skip_actions=[action])` records."""
    return lambda plain: (
        plain | {"device_traces": [[event for event in plain["device_traces"][0] if event["action"] != action]]}
    )


@pytest.mark.parametrize(
    ("form", "protocol"),
    [
        (_as_2_1, 4),
        (_by_cpp, 2),
        (_as_2_15, 4),
        (_on_windows, 4),
        (_seen_before, 4),
        (_skips("free_requested"), 4),
        (_skips("free_completed"), 4),
        *(rest(form, 4) for form in (_as_2_2, _as_2_3, _as_2_5, _as_2_8, _as_2_9)),
        rest(_as_2_10, 5),
        rest(_as_2_12, 5),
    ],
)
def test_every_version_reads_alike(form: Callable[[Plain], Plain], protocol: int, tmp_path: Path) -> None:
    known = analysed(content("python"), tmp_path)
    found = analysed(form(copy.deepcopy(content("python"))), tmp_path, protocol)
    assert (kinds(found), found.peak.allocated) == (kinds(known), known.peak.allocated)
    assert found.end is not None and known.end is not None
    assert (found.end.allocated, found.end.reserved) == (known.end.allocated, known.end.reserved)


def test_stacks_of_allocations_alone(tmp_path: Path) -> None:
    """With `context="alloc"` a free has no stack, and says nothing of the thread that it is on."""
    known = analysed(content("python"), tmp_path)
    plain = copy.deepcopy(content("python"))
    for event in plain["device_traces"][0]:
        if event["action"].startswith("free"):
            event["frames"] = []
    found = analysed(plain, tmp_path)
    assert [kinds(found)[kind] for kind in SURE] == [kinds(known)[kind] for kind in SURE]


def test_a_recording_of_the_state_alone_knows_no_passes(tmp_path: Path) -> None:
    """With `enabled="state"` one event is kept, which has no stack: it is no backward pass."""
    plain = copy.deepcopy(content("python"))
    plain["device_traces"][0] = [plain["device_traces"][0][-1] | {"frames": []}]
    found = analysed(plain, tmp_path)
    assert {*kinds(found)} <= {"parameters", "workspaces", "optimizer state", "unknown"}
    assert found.peak.allocated == by_hand(plain)[2]
