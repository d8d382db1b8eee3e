"""Exports of Nsight Systems: plain range names, passes of gaps, occupancy, lost kernels, threads and processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfkit import profile_names
from perfkit.readers.nsys.occupancy import _of_gpu
from tests.support.readers.nsys_exports import (
    CALL,
    GRAPH,
    KERNEL,
    OTHER_PROCESS,
    OTHER_THREAD,
    PROCESS,
    RANGE,
    Strings,
    Tables,
    call,
    kernel,
    nvtx,
    table_of,
    two_steps,
)  # fmt: skip

T4 = {
    "id": 0, "cuDevice": 0, "name": "Tesla T4", "smCount": 40, "computeMajor": 7, "computeMinor": 5,
    "maxWarpsPerSm": 32, "maxBlocksPerSm": 16, "maxRegistersPerSm": 65536, "maxShmemPerSm": 65536,
}  # fmt: skip
HOPPER, AMPERE, GA106 = (
    {"computeMajor": major, "smCount": sms, "maxWarpsPerSm": warps, "maxBlocksPerSm": blocks,
     "maxRegistersPerSm": 65536, "maxShmemPerSm": shared}
    for major, sms, warps, blocks, shared in (
        (9, 132, 64, 32, 233472), (8, 108, 64, 32, 167936), (8, 20, 48, 16, 102400)
    )
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "step", "name_of_pass"),
    [
        ("perfkit:step:3", "3", None), ("step 3", "3", None), ("Train step 12", "12", None), ("iteration_7", "7", None),
        ("ProfilerStep#4", "4", None), ("Step 10 to 20", None, None), ("footstep 3", None, None), ("step", None, None),
        ("perfkit:pass:classifier", None, "classifier"), ("forward", None, "forward"),
        ("Backward pass", None, "backward"),
        ("optimizer.step", None, "optimizer"), ("bwd", None, "backward"), ("forward_pre_hook", None, None),
        ("aten::forward", None, None), ("x" * 10_000, None, None), ("", None, None),
    ],
)  # fmt: skip
def test_what_a_name_says(name: str, step: str | None, name_of_pass: str | None) -> None:
    assert (profile_names.step_of(name), profile_names.pass_of(name)) == (step, name_of_pass)


def plain() -> Tables:
    """The two steps with plain names of ranges, of which one is opened again inside itself."""
    tables = two_steps()
    names = {"perfkit:step:0": "step 5", "perfkit:step:1": "step 6", "perfkit:pass:forward": "forward",
             "perfkit:pass:backward": "backward"}  # fmt: skip
    tables[RANGE] = [{**row, "text": names.get(row["text"], row["text"])} for row in tables[RANGE]]
    tables[RANGE].append(nvtx("forward", 200, 260))
    return tables


def test_plain_names_give_step_and_pass(tmp_path: Path) -> None:
    ours, theirs = (table_of(tmp_path / name, made) for name, made in (("a", two_steps()), ("b", plain())))
    for column in ("step", "pass", "module"):
        assert ours.frame[column].astype(object).equals(theirs.frame[column].astype(object))
    assert theirs.frame["range"][0] == "step 5/forward/my range" and theirs.facts["step_ns"] == [1000, 1000]


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()


def test_perfkits_own_ranges_win_over_plain_names(tmp_path: Path) -> None:
    tables = two_steps()
    tables[RANGE].append(nvtx("step 9", 0, 2000))
    assert table_of(tmp_path, tables).facts["steps"] == 2


def test_an_idle_stretch_has_the_pass_that_it_lies_in(tmp_path: Path) -> None:
    """Forward 0 to 500 and backward 500 to 1000; kernels 150–250, 340–400, 700–800, a copy 920–950, one at 1300."""
    gaps = table_of(tmp_path, two_steps()).facts["gaps"]
    by_pass = {name: sum(g["ns"] for g in gaps if g["pass"] == name) for name in ("forward", "backward", None)}
    assert by_pass == {"forward": 150 + 90, "backward": 120 + 50, None: 300 + 300 + 500}


# Launches of which Nsight Compute says the limits of occupancy by registers, shared memory and warps: block, registers,
# shared memory, what the multiprocessor was set to, GPU, and theoretical occupancy and waves as it states them.
@pytest.mark.parametrize(
    ("block", "registers", "shared", "given", "gpu", "grid", "occupancy", "waves"),
    [
        (256, 16, 0, 32768, HOPPER, 16384, 1.0, 15.515151515151516),
        (256, 16, 102400, 233472, HOPPER, 65536, 0.25, 248.24242424242425),
        (256, 31, 1024, 32768, HOPPER, 1, 1.0, 0.000946969696969697),
        (32, 16, 0, 32768, HOPPER, 1, 0.5, 0.00023674242424242425),
        (256, 56, 0, 32768, HOPPER, 1056, 0.5, 2.0),
        (1024, 32, 0, 8192, HOPPER, 4096, 1.0, 4096 / 264),
        (256, 21, 0, 32768, AMPERE, 864, 1.0, 1.0),
        (256, 16, 0, 8192, GA106, 120, 1.0, 1.0),
        (64, 16, 0, 32768, T4, 640, 1.0, 1.0),
        (1024, 255, 0, 0, T4, 640, np.nan, np.nan),  # cannot be launched
    ],
)
def test_occupancy_and_waves(block, registers, shared, given, gpu, grid, occupancy, waves) -> None:
    launch = {"registers": registers, "shared_bytes": shared, "shared_given": given, "grid_x": grid, "block_x": block,
              "grid_y": 1, "grid_z": 1, "block_y": 1, "block_z": 1}  # fmt: skip
    found = _of_gpu({name: np.array([value]) for name, value in launch.items()}, gpu)
    assert [float(v[0]) for v in found] == pytest.approx([occupancy, waves], nan_ok=True)


def test_occupancy_needs_what_the_gpu_can_do(tmp_path: Path) -> None:
    known = table_of(tmp_path / "a", {**two_steps(), "TARGET_INFO_GPU": [T4]}).frame
    first = known[known["short_name"] == "first"].iloc[0]
    assert first["occupancy"] == 1.0 and first["waves"] == 8 / (40 * 8)
    assert known["occupancy"].isna().tolist() == [k != "gpu_kernel" for k in known["kind"]]
    assert table_of(tmp_path / "b", two_steps()).frame["occupancy"].isna().all()


def test_launches_without_a_kernel_are_told(tmp_path: Path) -> None:
    tables = two_steps()
    whole = table_of(tmp_path / "a", tables)
    tables[KERNEL] = [row for row in tables[KERNEL] if row["correlationId"] != 3]
    lost = table_of(tmp_path / "b", tables)
    assert not any("have no kernel" in w for w in whole.warnings)
    assert any("1 launches of kernels have no kernel in the capture: some may be missing" in w for w in lost.warnings)


def test_ranges_belong_to_their_thread_and_process(tmp_path: Path) -> None:
    """Two processes with the same correlation ids, each with ranges of its own."""
    strings = Strings()
    tables: Tables = {
        KERNEL: [
            kernel(strings, "mine", 100, 200, 1),
            kernel(strings, "theirs", 150, 300, 1, globalPid=OTHER_PROCESS, deviceId=1),
        ],
        CALL: [
            call(strings, "cudaLaunchKernel_v7000", 50, 60, 1),
            call(strings, "cudaLaunchKernel_v7000", 50, 60, 1, OTHER_THREAD),
        ],
        RANGE: [nvtx("here", 0, 90), nvtx("there", 0, 90, OTHER_THREAD)],
    }
    tables["StringIds"] = strings.rows()
    frame = table_of(tmp_path, tables).frame
    assert dict(zip(frame["name"], frame["range"], strict=True)) == {"mine": "here", "theirs": "there"}
    assert frame["device"].tolist() == ["cuda:0", "cuda:1"] and PROCESS != OTHER_PROCESS


def test_replays_of_graphs_are_no_lost_kernels(tmp_path: Path) -> None:
    tables = two_steps()
    tables[KERNEL] = tables[KERNEL][:1]
    replay = {
        "start": 700,
        "end": 800,
        "deviceId": 0,
        "streamId": 7,
        "correlationId": 3,
        "globalPid": PROCESS,
        "graphId": 4,
    }
    tables[GRAPH] = [replay]
    table = table_of(tmp_path, tables)
    assert table.frame["kind"].tolist().count("graph") == 1
    assert not any("have no kernel" in w for w in table.warnings)
