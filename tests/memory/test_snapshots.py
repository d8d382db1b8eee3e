"""Who holds the memory in a snapshot, held against a training program whose allocations are known."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit.memory.analyse import EXCEEDS, NO_EVENTS, NO_STACKS, analyse
from perfkit.memory.lifetimes import allocations
from perfkit.memory.phases import line_of
from perfkit.memory.records import StackFrame
from perfkit.memory.results import DeviceMemory, Moment
from perfkit.readers.snapshot.read import read_snapshot
from tests.support.allocator import ACTIVATIONS, BUILD, FIRST, KIB, SECOND, STEP, Allocator, frames, training

Plain = dict[str, Any]


def _read(content: Any, folder: Path, name: str = "snapshot.pickle") -> DeviceMemory:
    path = folder / name
    path.write_bytes(pickle.dumps(content))
    snapshot = read_snapshot(path)
    return analyse([snapshot], "test").devices[0]


def _kinds(moment: Moment) -> dict[str, int]:
    return {part.kind: part.bytes for part in moment.parts}


@pytest.mark.parametrize("native", [False, True], ids=["Python's frames", "with those of C++"])
def test_every_kind_at_the_peak(native: bool, tmp_path: Path) -> None:
    allocator = Allocator(native)
    truth = training(allocator)
    found = _read(allocator.snapshot(), tmp_path)
    assert _kinds(found.peak) == truth
    assert found.peak.allocated == sum(truth.values()) == sum(owner.bytes for owner in found.peak.owners)
    assert found.end is not None
    assert found.end.allocated == allocator.snapshot()["segments"][0]["allocated_size"]
    lines = {(owner.kind, owner.line) for owner in found.peak.owners}
    assert {("activations", 20), ("activations", 25), ("optimizer state", 33), ("inputs", 8)} <= lines
    assert found.course is not None
    assert max(map(sum, zip(*found.course.kinds.values(), strict=True))) == found.peak.allocated


def _old(content: Plain) -> Plain:
    """As torch 2.1 wrote it: no times, no settings."""
    for event in content["device_traces"][0]:
        del event["time_us"]
    return {name: content[name] for name in ("segments", "device_traces")}


def _history(content: Plain) -> Plain:
    """As torch 2.0 wrote blocks: a history in place of frames, and no addresses."""
    for segment in content["segments"]:
        del segment["requested_size"], segment["segment_pool_id"], segment["is_expandable"]
        for block in segment["blocks"]:
            made = {"addr": block.pop("address"), "frames": block.pop("frames")}
            made["real_size"] = block.pop("requested_size")
            block["history"] = [made] if block["state"] == "active_allocated" else []
    return _old(content)


def _newest(content: Plain) -> Plain:
    """With what versions since 2.5 add."""
    for event in content["device_traces"][0]:
        event |= {"compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0)}
        event["frames"] = [frame | {"fx_node_op": "call_function"} for frame in event["frames"]]
    content["external_annotations"] = [{"device": 0, "time_us": 1, "name": "step", "stage": "START"}]
    content["allocator_settings"] = {"roundup_power2_divisions": {"1": 0}, "expandable_segments": True}
    return content


@pytest.mark.parametrize("form", [_old, _history, _newest])
def test_every_version(form: Callable[[Plain], Plain], tmp_path: Path) -> None:
    allocator = Allocator()
    truth = training(allocator)
    assert _kinds(_read(form(copy.deepcopy(allocator.snapshot())), tmp_path).peak) == truth


def test_what_was_there_before_the_events_counts(tmp_path: Path) -> None:
    allocator = Allocator()
    truth = training(allocator)
    content = allocator.snapshot()
    del content["device_traces"][0][: len(content["device_traces"][0]) // 2]
    found = _read(content, tmp_path)
    assert found.peak.allocated == sum(truth.values())
    kinds = _kinds(found.peak)
    assert kinds["parameters"] == truth["parameters"]
    assert kinds["optimizer state"] == truth["optimizer state"]


def test_without_stacks_all_is_unknown_and_says_so(tmp_path: Path) -> None:
    allocator = Allocator()
    truth = training(allocator)
    content = allocator.snapshot()
    for one in [*content["device_traces"][0], *content["segments"][0]["blocks"]]:
        one["frames"] = []
    found = _read(content, tmp_path)
    assert _kinds(found.peak) == {"unknown": sum(truth.values())}
    assert NO_STACKS in found.notes


def test_an_allocation_that_failed(tmp_path: Path) -> None:
    allocator = Allocator()
    training(allocator, fails=True)
    found = _read(allocator.snapshot(), tmp_path)
    (failure,) = found.failures
    assert (failure.bytes, failure.device_free) == (40 << 20, 30 << 20)
    assert failure.where == "/home/u/model.py:25 in forward"
    assert found.end is not None
    assert failure.allocated == found.end.allocated
    assert _kinds(found.end)["activations"] == 2 * ACTIVATIONS, "the pass that would free them had not begun"
    assert "expandable segments" in [remedy.name for remedy in found.remedies]


def test_what_an_exception_gives_back_was_held_when_the_allocation_failed(tmp_path: Path) -> None:
    """A program that catches the error has freed its activations by the time that it writes the snapshot."""
    allocator = Allocator()
    training(allocator, fails=True)
    held = _read(allocator.snapshot(), tmp_path)
    activations = [address for address, (size, _, _) in allocator.live.items() if size == ACTIVATIONS]
    for address in activations:
        allocator.free(address, SECOND)
    for address in [allocator.alloc(KIB, FIRST) for _ in range(2)]:
        allocator.free(address, FIRST)
    found = _read(allocator.snapshot(), tmp_path)
    assert len(activations) == 2 and held.end is not None and found.end is not None
    (failure,) = found.failures
    assert failure.allocated == held.end.allocated
    assert _kinds(found.peak) == _kinds(held.peak)
    assert "activations" not in _kinds(found.end)


def _of_another(device: int, action: str) -> Plain:
    """A snapshot of a training on the second device, with an event on another one that holds nothing."""
    allocator = Allocator(device=1)
    training(allocator)
    content = allocator.snapshot()
    names = {"device_free": 1 << 20} if action == "oom" else {"addr": 0}
    event = {"action": action, "size": 1 << 30, "stream": 0, "time_us": 1, "frames": []} | names
    traces = [*content["device_traces"], [], []]
    traces[device] = [event]
    return content | {"device_traces": traces}


@pytest.mark.parametrize("device", [0, 2])
def test_a_device_with_the_event_of_a_snapshot_alone_holds_nothing(device: int, run_cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(_of_another(device, "snapshot")))
    done = run_cli(["report", path, "--out", tmp_path / "out"])
    assert done.rc == 0, done.stderr
    assert f"cuda:{device}" not in done.stdout
    assert "The peak of cuda:1 is" in done.stdout


def test_a_device_on_which_the_first_allocation_failed(run_cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    content = _of_another(0, "oom")
    for device, plain in enumerate([content, {"segments": [], "device_traces": content["device_traces"][:1]}]):
        path.write_bytes(pickle.dumps(plain))
        done = run_cli(["report", path, "--out", tmp_path / f"out{device}"])
        assert done.rc == 0, done.stderr
    assert "An allocation of 1.00 GiB failed" in done.stdout
    assert "Nothing is allocated on cuda:0." in done.stdout


def test_a_recording_without_requests_to_free(tmp_path: Path) -> None:
    """`skip_actions=["free_requested"]`: what was there before the first event ends by the free that is left."""
    allocator = Allocator()
    early = [allocator.alloc(KIB * (number + 1), BUILD) for number in range(3)]
    begin = len(allocator.events)
    for address in early:
        allocator.free(address, FIRST)
    content = allocator.snapshot()
    content["device_traces"][0] = [e for e in allocator.events[begin:] if e["action"] != "free_requested"]
    assert _read(content, tmp_path).peak.allocated == 6 * KIB
    content["device_traces"][0] = content["device_traces"][0][:1]
    assert _read(content, tmp_path).peak.allocated == 0, "its request to free is older than the events that are left"


def test_parts_that_do_not_belong_together_are_told(tmp_path: Path) -> None:
    allocator = Allocator()
    training(allocator)
    content = allocator.snapshot()
    assert not any("not whole" in note for note in _read(copy.deepcopy(content), tmp_path).notes)
    content["segments"][0]["allocated_size"] += 512
    assert any("not whole" in note for note in _read(copy.deepcopy(content), tmp_path).notes)
    content["segments"][0]["total_size"] = 512
    content["device_traces"][0] = content["device_traces"][0][1:]
    assert EXCEEDS in _read(content, tmp_path).notes


def test_what_was_there_before_the_recording_is_told(tmp_path: Path) -> None:
    allocator = Allocator()
    training(allocator)
    content = allocator.snapshot()
    for block in content["segments"][0]["blocks"]:
        block["frames"] = []
    content["device_traces"][0] = [{"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "frames": FIRST}]
    notes = _read(content, tmp_path).notes
    assert NO_EVENTS in notes
    assert any(note.startswith("100.0% of the peak was there before the first event") for note in notes)


def test_an_optimizer_of_the_program_has_no_fused_one(tmp_path: Path) -> None:
    wrapped = ("/v/lib/python3.11/site-packages/torch/optim/optimizer.py", 400, "wrapper")
    for stack, advised in ((STEP, True), (frames(("/home/u/optimizer.py", 70, "step"), wrapped), False)):
        allocator = Allocator()
        allocator.alloc(KIB, BUILD)
        allocator.free(allocator.alloc(KIB, stack), stack)
        found = _read(allocator.snapshot(), tmp_path)
        assert _kinds(found.peak) == {"parameters": KIB, "temporaries": KIB}
        assert ("fused" in [remedy.name for remedy in found.remedies]) == advised


def test_sizes_are_those_of_blocks(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.alloc(1000, BUILD)
    allocator.free(allocator.alloc(700, FIRST), FIRST)
    found = _read(allocator.snapshot(), tmp_path)
    assert (found.peak.allocated, found.peak.requested) == (2048, 1700)


def test_half_the_activations_halve_the_peak_no_more_than_they_hold_it(tmp_path: Path) -> None:
    allocator = Allocator()
    for _ in range(2):
        saved = allocator.alloc(100 * KIB, FIRST)
        allocator.free(allocator.alloc(KIB, []), [])
        allocator.free(saved, [])
        allocator.free(allocator.alloc(80 * KIB, BUILD), BUILD)
    found = _read(allocator.snapshot(), tmp_path)
    saves = {remedy.name: remedy.saves for remedy in found.remedies}
    assert saves["micro-batches"] == 101 * KIB - 80 * KIB, "what else was held then is the next peak"


def test_events_and_columns_agree(tmp_path: Path) -> None:
    allocator = Allocator()
    training(allocator)
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(allocator.snapshot()))
    (device,) = read_snapshot(path).devices
    made = [event for event in allocator.events if event["action"] == "alloc"]
    assert len(allocations(device)) == len(made)
    assert device.trace.size.sum() == sum(event["size"] for event in allocator.events)


def test_segments_alone_are_a_snapshot(run_cli: Any, tmp_path: Path) -> None:
    allocator = Allocator()
    training(allocator)
    path = tmp_path / "segments.pickle"
    path.write_bytes(pickle.dumps(allocator.snapshot()["segments"]))
    done = run_cli(["report", path, "--json"])
    assert done.rc == 0, done.stderr
    (device,) = json.loads(done.stdout)["devices"]
    assert device["peak"]["allocated"] == device["end"]["allocated"] == 512 * KIB


def test_a_folder_of_ranks_is_one_page(run_cli: Any, tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(3):
        allocator = Allocator(device=rank)
        training(allocator)
        for _ in range(rank):
            allocator.alloc(256 * KIB, BUILD)
        (folder / f"rank{rank}.pickle").write_bytes(pickle.dumps(allocator.snapshot()))
    (folder / "notes.txt").write_text("not a snapshot")
    done = run_cli(["report", folder, "--out", tmp_path / "out"])
    assert done.rc == 0, done.stderr
    assert "The peak of cuda:2 is" in done.stdout, "the rank that holds most comes first"
    assert "rank0.pickle cuda:0" in done.stdout
    page = (tmp_path / "out" / "report-memory.html").read_text()
    assert page.count('"line":"stack"') >= 15


def test_other_files_say_what_they_are(run_cli: Any, tmp_path: Path) -> None:
    for name, content in {"list": [1, 2, 3], "words": {"segments": 1, "device_traces": 2},
                          "event": {"segments": [], "device_traces": [[{"action": "alloc", "addr": "x"}]]},
                          "more": {"segments": {}, "device_traces": []}}.items():  # fmt: skip
        path = tmp_path / f"{name}.pickle"
        path.write_bytes(pickle.dumps(content))
        done = run_cli(["report", path])
        assert (done.rc, done.stdout) == (2, "")
        assert done.stderr.startswith("perfkit: "), done.stderr


def test_the_line_is_the_programs_own() -> None:
    """Wrappers of `perfkit capture` and PyTorch's modules lie between an allocation and the program's line."""
    stack = (
        StackFrame("/env/lib/python3.12/site-packages/torch/nn/functional.py", 2, "linear"),
        StackFrame("/home/me/perfkit/perfkit/programs/wrappers.py", 165, "__call__"),  # of an earlier perfkit
        StackFrame("/home/me/perfkit/perfkit/capture/agent/wrappers.py", 165, "__call__"),
        StackFrame("/home/me/llama.py", 22, "forward"),
    )
    assert line_of(stack) == stack[3]
    assert line_of(stack[:1]) == stack[0]
    windows = (
        StackFrame(
            "C:/Users/me/AppData/Local/Programs/Python/Python310/Lib/site-packages/torch/nn/functional.py", 2, "linear"
        ),
        StackFrame("C:/Users/me/AppData/Local/Programs/Python/Python310/Lib/contextlib.py", 79, "inner"),
        StackFrame("D:/me/Torch/lib/llama.py", 22, "forward"),
    )
    assert line_of(windows) == windows[2]


def test_a_snapshot_of_nothing_is_a_sentence(run_cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "empty.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]], "allocator_settings": {}}))
    done = run_cli(["report", path])
    assert (done.rc, done.stdout) == (2, "") and "no device has memory or events" in done.stderr


def test_tensors_of_the_size_of_a_workspace(tmp_path: Path) -> None:
    """Of 32 MiB are cuBLAS's workspace on Hopper, and activations of 16 × 1024 × 1024 numbers of two bytes."""
    allocator = Allocator()
    parameter = allocator.alloc(32 << 20, BUILD)
    workspaces = [allocator.alloc(32 << 20, FIRST) for _ in range(2)]
    for _ in range(5):
        allocator.alloc(32 << 20, FIRST)
    allocator.fail(32 << 20, 1 << 20, FIRST)
    found = _kinds(_read(allocator.snapshot(), tmp_path).peak)
    assert parameter and len(workspaces) == 2
    assert found == {"parameters": 32 << 20, "workspaces": 64 << 20, "activations": 160 << 20}
