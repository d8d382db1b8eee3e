"""What a worker says of an exception of somebody else's code."""

from __future__ import annotations

import pytest
import torch

from perfkit.capture.worker import SMALLER, explained
from perfkit.errors import OutOfMemory, RunFailed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "CUDA out of memory. Tried to allocate 96.00 GiB. GPU 0 has a total capacity …",
            "The GPU's memory ran out: 96.00 GiB more were asked for.",
        ),
        ("CUDA error: out of memory", "The GPU's memory ran out."),
    ],
)
def test_running_out_of_gpu_memory_names_the_amount_and_the_next_step(text: str, said: str) -> None:
    found = explained(torch.cuda.OutOfMemoryError(text))

    assert isinstance(found, OutOfMemory) and (found.message, found.hint) == (said, SMALLER)


def test_running_out_of_memory_on_a_cpu_does_too() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)

    found = explained(caught.value)
    assert isinstance(found, OutOfMemory) and found.message == f"Memory ran out: {4 << 60} bytes more were asked for."


def test_any_other_error_is_its_own_sentence() -> None:
    found = explained(ValueError("wrong shape\nsecond line"))

    assert type(found) is RunFailed and str(found) == "ValueError: wrong shape"
