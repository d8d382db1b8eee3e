"""Launches that may begin while the kernel ahead ends: who allows them, and what the driver is given."""

from __future__ import annotations

import ctypes

import pytest
import torch

from perfkit import kernels
from perfkit.errors import RunFailed
from perfkit.kernels import find
from perfkit.kernels.checking import Inputs
from perfkit.kernels.cuda import dependent_launch
from perfkit.kernels.cuda.binding import host_function
from perfkit.kernels.cuda.host import GpuLimits, record

H100 = GpuLimits("sm_90", 132, 232448)


def test_only_inside_a_block_that_allows_them() -> None:
    assert not dependent_launch.allowed()
    with kernels.overlapping():
        assert dependent_launch.allowed()
        with kernels.overlapping(False):
            assert not dependent_launch.allowed()
        assert dependent_launch.allowed()
    assert not dependent_launch.allowed()


def test_the_structures_are_the_drivers() -> None:
    """As cuda.h lays them out on 64-bit systems."""
    assert ctypes.sizeof(dependent_launch._Attribute) == 72
    assert dependent_launch._Attribute.value.offset == 8
    assert ctypes.sizeof(dependent_launch._Configuration) == 56
    assert (dependent_launch._Configuration.stream.offset, dependent_launch._Configuration.attributes.offset) == (
        32,
        40,
    )


def test_what_is_launched(monkeypatch) -> None:
    seen = {}

    class Driver:
        code = 0

        def cuLaunchKernelEx(self, given, function, parameters, extra):  # the driver's name
            found = ctypes.cast(given, ctypes.POINTER(dependent_launch._Configuration)).contents
            seen["sizes"] = (*found.grid, *found.block, found.shared, found.stream, found.count)
            seen["attribute"] = (found.attributes[0].id, found.attributes[0].value.allowed)
            seen["function"] = function.value
            at = [ctypes.cast(p, ctypes.POINTER(kind))[0] for p, kind in
                  zip(parameters, (ctypes.c_int64, ctypes.c_int64, ctypes.c_double), strict=True)]  # fmt: skip
            seen["parameters"] = at
            return self.code

    driver = Driver()
    monkeypatch.setattr(dependent_launch, "_driver", lambda: driver)
    dependent_launch.launch(77, (5, 2, 1), 128, 4096, 99, [2**40, 7, 0.5])
    assert seen == {
        "sizes": (5, 2, 1, 128, 1, 1, 4096, 99, 1), "attribute": (6, 1), "function": 77, "parameters": [2**40, 7, 0.5],
    }  # fmt: skip
    driver.code = 1
    with pytest.raises(RunFailed, match="could not launch a kernel early: error 1"):
        dependent_launch.launch(77, (5, 2, 1), 128, 4096, 99, [2**40, 7, 0.5])


@pytest.mark.parametrize("name", ["qkv", "attention", "sum", "swiglu", "head", "token"])
def test_the_fastest_kernels_of_decoding_are_made_for_it(name) -> None:
    operation = find(f"decode_{name}")
    fastest = max((i for i in operation.implementations if i.language == "cuda"), key=lambda i: i.version)
    scalars = operation.scalars(*operation.inputs(Inputs("bf16", 0), **operation.cases[3]))
    count = len(operation.signature.tensors) + len(operation.signature.outputs)
    host = record(host_function(operation.source_path(fastest), fastest.symbol), H100, 2, [0] * count, scalars)
    assert all(step.early for step in host.steps)


def test_the_first_of_the_largest_is_taken() -> None:
    kernels.load()
    rows = torch.tensor([[1.0, 3.0, 3.0], [-2.0, -1.0, -1.0], [0.0, float("nan"), 9.0], [float("-inf")] * 3])
    assert torch.ops.perfkit.decode_token(rows).flatten().tolist() == [1, 1, 1, 0]
    assert torch.ops.perfkit.decode_token(rows).tolist() == rows.argmax(-1, keepdim=True).tolist()


def test_a_position_that_the_cache_has_no_room_for() -> None:
    kernels.load()
    q, cache = torch.zeros(1, 2, 8), torch.zeros(1, 1, 4, 8)
    with pytest.raises(Exception, match="the position is not among the S of the cache"):
        torch.ops.perfkit.decode_attention(q, cache, cache, torch.tensor([4]), 1.0)
