from __future__ import annotations

import sys

import pytest

from perfkit.errors import Unavailable
from perfkit.hardware.access import closed_devices, no_gpu
from tests.support.hardware.fakes import refuse, write

FILES = {"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": "", "dev/nvidia-uvm": "", "dev/nvidia-modeset": ""}
GPU = {"proc/driver/nvidia/gpus/0000:3b:00.0/information": "Model: \t NVIDIA H200\n"}


@pytest.fixture(autouse=True)
def without_nvml(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_no_device_files_are_not_closed_ones(tmp_path):
    assert closed_devices(tmp_path) == []
    assert closed_devices(write(tmp_path, FILES)) == []


@pytest.mark.parametrize(
    ("refused", "closed"),
    [
        (["nvidia-modeset"], []),  # CUDA does without it
        (["nvidia1"], []),  # another job's
        (["nvidia0", "nvidia1"], ["nvidia0", "nvidia1"]),
        (["nvidia1", "nvidia-uvm"], ["nvidia-uvm"]),
    ],
)
def test_what_cuda_needs_and_nothing_else(monkeypatch, tmp_path, refused, closed):
    dev = write(tmp_path, FILES) / "dev"
    refuse(monkeypatch, *(dev / name for name in refused))
    assert [path.name for path in closed_devices(tmp_path)] == closed


def test_closed_files_are_named_with_what_helps(monkeypatch, tmp_path):
    write(tmp_path, FILES | GPU)
    refuse(monkeypatch, *(tmp_path / "dev" / name for name in ("nvidiactl", "nvidia0", "nvidia1")))
    error = no_gpu("--device cuda", tmp_path)
    assert type(error) is Unavailable
    assert error.message.startswith("--device cuda: this user may not open the GPU's device files: ")
    assert error.message.endswith(": /dev/nvidiactl, /dev/nvidia0, /dev/nvidia1.")
    assert "group" in error.hint and "--gpus all" in error.hint


def test_a_variable_that_hides_all_gpus_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "no usable CUDA GPU" in no_gpu("--device cuda", tmp_path).message  # no GPU has to be hidden
    write(tmp_path, GPU)
    assert 'CUDA_VISIBLE_DEVICES="" leaves none of the GPUs' in no_gpu("--device cuda", tmp_path).message


@pytest.mark.parametrize(
    ("value", "hides"), [("-1", True), ("1", True), ("0", False), ("0,9", False), ("GPU-5a", False)]
)
def test_a_variable_that_may_leave_one_is_not_blamed(monkeypatch, tmp_path, value, hides):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert ("CUDA_VISIBLE_DEVICES" in no_gpu("--device cuda", write(tmp_path, GPU)).message) is hides


def test_otherwise_doctor_is_asked(tmp_path):
    error = no_gpu("--device cuda:1", write(tmp_path, GPU))
    assert (error.message, error.hint) == (
        "--device cuda:1: no usable CUDA GPU was found.",
        "`perfkit doctor` says more.",
    )
