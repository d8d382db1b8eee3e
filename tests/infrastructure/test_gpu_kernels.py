"""`benchmarks/gpu_kernels.py`: what finds too little memory is checked again alone, and what is wrong has a line."""

from __future__ import annotations

import math
from typing import Any

import pytest

from benchmarks import gpu_kernels
from benchmarks.gpu_kernels import Checked

RIGHT, SHORT = ("family", "right", "bf16"), ("family", "short", "bf16")


def test_what_found_no_memory_beside_the_others_is_checked_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that others shared 53 kernels were called wrong, for want of memory."""
    calls: list[tuple[int, list[Any]]] = []

    def checked(tasks: Any, batch: int, length: int, workers: int) -> dict[Any, list[Checked]]:
        calls.append((workers, list(tasks)))
        problem = "CUDA out of memory. Tried to allocate 384.00 MiB." if workers > 1 else ""
        return {t: [Checked(t[1], t[2], "cuda:1", math.inf, problem if t == SHORT else "")] for t in tasks}

    monkeypatch.setattr(gpu_kernels, "_checked", checked)
    found = gpu_kernels.check_everything([RIGHT, SHORT], 16, 1024)
    assert calls == [(gpu_kernels.WORKERS, [RIGHT, SHORT]), (1, [SHORT])]
    assert [(one.operation, one.problem) for one in found] == [("right", ""), ("short", "")]


def test_a_wrong_kernel_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [Checked("right", "bf16", "cuda:1", 2.0, "wrong at {'N': 1}")]
    monkeypatch.setattr(gpu_kernels, "_checked", lambda tasks, batch, length, workers: {RIGHT: wrong})
    assert gpu_kernels.check_everything([RIGHT], 16, 1024) == wrong


def test_an_operation_of_which_none_is_right_has_a_line() -> None:
    theirs = {"operation": "gelu", "dtype": "bf16", "implementation": "pytorch", "ns": 1e3, "bandwidth": 1e9,
              "of_copy": 0.1, "speedup": None}  # fmt: skip
    ours = {**theirs, "operation": "softmax", "implementation": "cuda:1", "speedup": 2.0}
    _, first, second = gpu_kernels.summary([theirs, ours]).splitlines()
    assert first.split()[:2] == ["gelu", "bf16"] and first.endswith("none of ours is right")
    assert "cuda:1" in second and second.endswith("2.00")
