"""What a worker says of an exception of somebody else's code."""

from __future__ import annotations

import pytest
import torch

from perfkit.capture.worker import SMALLER, explained


def test_running_out_of_gpu_memory_names_the_amount_and_the_next_step() -> None:
    error = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 96.00 GiB. GPU 0 has a total capacity …")

    assert explained(error) == ("The GPU's memory ran out: 96.00 GiB more were asked for.", SMALLER)


def test_running_out_of_memory_on_a_cpu_does_too() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)

    assert explained(caught.value) == (f"Memory ran out: {4 << 60} bytes more were asked for.", SMALLER)


def test_any_other_error_is_its_own_sentence() -> None:
    assert explained(ValueError("wrong shape\nsecond line")) == ("ValueError: wrong shape", "")
