"""How a call reaches the recorded launches of a CUDA kernel, with a stand-in for the GPU's side."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfkit.errors import RunFailed
from perfkit.kernels import find, languages
from perfkit.kernels.cuda import binding, maps
from perfkit.kernels.cuda.host import Argument, GpuLimits, Host, Panels, record

H200 = GpuLimits("sm_90", 132, 227 << 10)


class Driver(Exception):
    """As CuPy's driver errors are known: by their module."""

    __module__ = "cupy_backends.cuda.api.driver"


class Program:
    """Keeps what it was made of and run with."""

    made: list[Host] = []
    values: list[list[Any]] = []
    error: Exception | None = None

    def __init__(self, host: Host, source: Path, dtype: str, device: int) -> None:
        Program.made.append(host)

    def run(self, values: list[Any]) -> None:
        Program.values.append(values)
        if Program.error:
            raise Program.error


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> type[Program]:
    monkeypatch.setattr(binding, "_CompiledLaunches", Program)
    monkeypatch.setattr(binding, "device_facts", lambda device: H200)
    monkeypatch.setattr(Program, "made", [])
    monkeypatch.setattr(Program, "values", [])
    monkeypatch.setattr(Program, "error", None)
    return Program


def bound(name: str, version: int, dtype: str = "fp32") -> binding.BoundKernel:
    operation = find(name)
    (chosen,) = (i for i in operation.implementations if (i.language, i.version) == ("cuda", version))
    source = operation.source_path(chosen)
    return binding.BoundKernel(operation, source, binding.host_function(source, chosen.symbol), dtype)


def test_a_program_is_made_once_for_each_size_and_alignment(program: type[Program]) -> None:
    kernel = bound("gelu_forward", 2)
    x, y = torch.zeros(100), torch.zeros(100)
    for _ in range(3):
        kernel([x, y], (100,))
    kernel([x[:99], y[:99]], (99,))
    kernel([x[1:], y[1:]], (99,))
    assert [host.steps[0].kernel for host in program.made] == [
        "gelu_forward_v2<T, 4, 1>",
        "gelu_forward_v2<T, 4, 1>",
        "gelu_forward_v2<T, 1, 1>",
    ]
    assert program.values[0] == [x.data_ptr(), y.data_ptr()]


def test_floats_are_values_of_a_call_not_of_a_program(program: type[Program]) -> None:
    kernel = bound("adamw_step", 2)
    tensors = [torch.zeros(8) for _ in range(4)]
    for rate in (0.1, 0.2):
        kernel(tensors, (8, rate, *[0.5] * 7))
    (host,) = program.made
    assert host.steps[0].arguments[:5] == (Argument(0), Argument(1), Argument(2), Argument(3), 8)
    assert [values[4] for values in program.values] == [0.1, 0.2]


def test_programs_are_forgotten_before_they_fill_the_memory(program: type[Program]) -> None:
    kernel = bound("gelu_forward", 1)
    x = torch.zeros(1000)
    for n in range(1, 400):
        kernel([x, x], (n,))
    assert len(kernel._programs) <= 256


def test_the_block_size_can_be_swept(program: type[Program]) -> None:
    kernel = bound("gelu_forward", 2)
    assert kernel.parameters((100,)) == {"block": 256}
    assert {"block": 512} in kernel.sweep
    wider = kernel.using(block=512)
    wider([torch.zeros(4096), torch.zeros(4096)], (4096,))
    assert program.made[0].steps[0].block == 512
    assert program.made[0].steps[0].grid == (2, 1, 1)
    assert bound("bias_gradient", 3).sweep == []


def test_a_failed_launch_is_a_sentence_and_other_errors_stay(program: type[Program]) -> None:
    kernel = bound("gelu_forward", 2)
    tensors = [torch.zeros(4), torch.zeros(4)]
    program.error = Driver("CUDA_ERROR_INVALID_VALUE: invalid argument")
    with pytest.raises(RunFailed, match=r"perfkit::gelu_forward could not be launched in fp32: CUDA_ERROR_INVALID"):
        kernel(tensors, (4,))
    program.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        kernel(tensors, (4,))


def test_scratch_memory_follows_the_values_of_the_call() -> None:
    layernorm = find("layernorm_backward")
    function = binding.host_function(layernorm.folder / "layernorm.cu", "layernorm_backward_v3")
    host = record(function, H200, 4, [0] * 8, (8192, 768, 0))
    first, second = host.steps
    assert host.values == 8
    assert Argument(8) in first.arguments and second.arguments[0] == Argument(8)
    assert host.scratches == [first.grid[0] * 2 * 768 * 4]


HEADS = (4, 2, 4096, 64, 0.125)  # of queries, of them to one of keys, T, HS, scale


def attention(direction: str, device: GpuLimits = H200, scalars: Any = HEADS, misaligned: int = 0) -> Host:
    operation = find(f"flash_attention_{direction}")
    function = binding.host_function(operation.folder / "flash_attention.cu", f"{operation.name}_v2")
    return record(function, device, 2, [misaligned] + [0] * (4 if direction == "forward" else 8), scalars)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_attention_is_left_to_triton_where_its_kernels_cannot_run(direction: str) -> None:
    other = [
        attention(direction, GpuLimits("sm_80", 108, 163 << 10)),
        attention(direction, GpuLimits("sm_100", 148, 227 << 10)),
        attention(direction, scalars=(4, 2, 70, 16, 0.25)),
        attention(direction, misaligned=8),
    ]
    assert [(host.instead, host.steps) for host in other] == [("triton", [])] * 4
    assert attention(direction).instead == ""
    assert attention(direction, scalars=(4, 2, 0, 64, 0.125)).steps == []


def test_tensors_for_the_copy_engine_say_their_shape() -> None:
    *_, step = attention("forward").steps
    q, k, v = step.arguments[:3]
    assert (q, k) == (Panels(0, 0, 4, 4096, 64, 192), Panels(1, 0, 2, 4096, 64, 128))
    assert isinstance(v, Panels) and v.place == 2
    assert step.shared <= H200.shared


def test_a_call_that_is_left_to_another_language_runs_there(
    program: type[Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    triton = languages.Language(("cuda",), lambda: None, lambda *what: lambda *given: called.append((what, given)))
    monkeypatch.setitem(languages.LANGUAGES, "triton", triton)
    kernel = bound("flash_attention_forward", 2, "bf16")
    tensors = [torch.zeros(4, 70, 16, dtype=torch.bfloat16) for _ in range(5)]
    for _ in range(2):
        kernel(tensors, (4, 2, 70, 16, 0.25))
    assert not program.values and len(called) == 2
    (operation, implementation, dtype), (given, scalars) = called[0]
    assert (operation.name, implementation.language, dtype) == ("flash_attention_forward", "triton", "bf16")
    assert given is tensors and scalars == (4, 2, 70, 16, 0.25)


class Encoder:
    """The driver's two functions for kernels with tensor maps."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.encoded: list[Any] = []
        self.launched: list[Any] = []

    def cuTensorMapEncodeTiled(self, place, *given):  # the driver's name
        ctypes.memset(place, len(self.encoded) + 1, 128)
        _, _, address, sizes, strides, box, *rest = given
        self.encoded.append((place.value % 64, address.value, list(sizes), list(strides), list(box), rest[-3]))
        return self.code

    def cuLaunchKernel(self, function, *given):  # the driver's name
        *sizes, shared, stream, pointers, _ = given
        first = ctypes.string_at(pointers[0], 128)
        numbers = [ctypes.c_int64.from_address(pointers[1]).value, ctypes.c_double.from_address(pointers[2]).value]
        self.launched.append((function.value, sizes, shared, stream.value, first, numbers))
        return self.code


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> Encoder:
    made = Encoder()
    monkeypatch.setattr(maps, "_driver", lambda: made)
    maps.tensor_map.cache_clear()
    return made


def test_a_tensor_map_is_encoded_once_for_each_place(encoder: Encoder) -> None:
    first = maps.tensor_map(4096, 6, 1000, 128, 64)
    assert maps.tensor_map(4096, 6, 1000, 128, 64) is first
    assert bytes(first) == b"\1" * 128
    assert encoder.encoded == [(0, 4096, [128, 1000, 6], [256, 256_000], [64, 64, 1], 3)]
    assert bytes(maps.tensor_map(8192, 6, 1000, 128, 64)) == b"\2" * 128


def test_a_tensor_map_is_passed_by_value(encoder: Encoder) -> None:
    panels = maps.tensor_map(4096, 1, 64, 64, 64)
    maps.launch(7, (132, 1, 1), 384, 9000, 3, [panels, 5, 0.5])
    assert encoder.launched == [(7, [132, 1, 1, 384, 1, 1], 9000, 3, b"\1" * 128, [5, 0.5])]


def test_a_recorded_launch_with_panels_goes_to_the_driver(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensor's address, as it is at this call, becomes a map; scratch memory and floats keep their places."""
    step = Host(H200, 2, 2)
    counter = step.scratch(1)
    step.launch("f<T>", (3, 1, 1), 384, step.panels(Argument(0), 6, 1000, 128, 64), counter, Argument(1), shared=9000)
    monkeypatch.setattr(binding, "cubin", lambda *what: SimpleNamespace(path=None, symbols={"f<T>": "f"}))
    monkeypatch.setattr(binding, "_kernel", lambda *what: SimpleNamespace(ptr=7))
    monkeypatch.setattr(binding, "_stream", lambda pointer: SimpleNamespace(ptr=3))
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    launches = binding._CompiledLaunches(step, Path("f.cu"), "bf16", 0)
    scratch = torch.zeros(4, dtype=torch.uint8)
    launches._empty = lambda size: scratch[:size]
    launches.run([4096, 0.5])
    assert encoder.encoded == [(0, 4096, [128, 1000, 6], [256, 256_000], [64, 64, 1], 3)]
    assert encoder.launched == [(7, [3, 1, 1, 384, 1, 1], 9000, 3, b"\1" * 128, [scratch.data_ptr(), 0.5])]


def test_what_the_driver_refuses_is_a_sentence(encoder: Encoder) -> None:
    encoder.code = 1
    with pytest.raises(RunFailed, match="cannot describe a tensor to the copy engine: error 1"):
        maps.tensor_map(4096, 1, 64, 64, 64)
    with pytest.raises(RunFailed, match="could not launch a kernel: error 1"):
        maps.launch(7, (1, 1, 1), 128, 0, 0, [maps.TensorMap(), 1, 1.0])


def test_widths_follow_rows_and_addresses() -> None:
    host = Host(H200, 2, 2)
    assert host.width(768, Argument(0)) == 8
    assert host.width(50257, Argument(0)) == 1
    assert host.width(12, Argument(0)) == 4
    assert host.width(0, Argument(0, misaligned=4)) == 2


def test_tensor_cores_take_a_few_aligned_rows_of_bf16() -> None:
    host = Host(H200, 2, 2)
    assert [tile and tile.rows for tile in (host.tile(n, 2048, Argument(0)) for n in (1, 2, 8, 9, 16, 17, 99))] == [
        None, 8, 8, 16, 16, 32, 32,
    ]  # fmt: skip
    assert host.tile(8, 12, Argument(0)) is None
    assert host.tile(8, 2048, Argument(0, misaligned=8)) is None
    assert Host(H200, 4, 2).tile(8, 2048, Argument(0)) is None
    short, large = host.tile(8, 72), host.tile(32, 2048)
    assert short is not None and short.warps == 2  # of 64 columns each
    assert large is not None and large.shared >= large.warps * large.tiles * (128 + 8) * 4  # for the warps' sums


def test_rows_are_held_by_the_fewest_threads_and_blocks() -> None:
    host = Host(H200, 4, 1)
    warp, block = host.row_in_registers(768, 4, 128), host.row_in_registers(1600, 4, 128)
    assert warp is not None and (warp.threads, warp.packs, warp.rows) == (32, 6, 4)
    assert block is not None and (block.threads, block.packs, block.rows) == (64, 7, 1)
    assert host.row_in_registers(50257, 1, 128) is None
    one, two = host.shared_rows(20_000), host.shared_rows(50257)
    assert one is not None and one.blocks == 1
    assert two is not None and two.blocks == 2 and 2 * two.bytes < H200.shared
    assert Host(GpuLimits("sm_80", 108, 163 << 10), 4, 1).shared_rows(50257) is None


def test_long_rows_of_rmsnorm_are_shared_by_a_cluster_where_it_suits_them() -> None:
    operation = find("rmsnorm_backward")
    fourth = next(i for i in operation.implementations if (i.language, i.version) == ("cuda", 4))
    function = binding.host_function(operation.source_path(fourth), fourth.symbol)

    def first(N: int, C: int, item: int = 2, device: GpuLimits = H200, offset: int = 0) -> Any:
        return record(function, device, item, [offset] * 6, [N, C, 0]).steps[0]

    for C, item, blocks in ((2048, 2, 1), (8192, 2, 1), (16384, 2, 2), (32768, 2, 4), (65536, 4, 8)):
        step = first(4096, C, item)
        assert step.kernel.startswith("rmsnorm_backward_v4<") and step.grid[0] % blocks == 0
        assert step.shared + 1024 <= H200.shared * (C // blocks) / 8192  # as many blocks as are meant share it
        assert f", {blocks}, " in step.kernel
    assert first(3, 16384).grid[0] == 6  # no cluster without rows
    for other in (first(4096, 768), first(4096, 5120), first(4096, 16384, offset=8), first(4096, 16388)):
        assert "_v4<" not in other.kernel
    assert "_v4<" not in first(4096, 2048, device=GpuLimits("sm_80", 108, 163 << 10)).kernel
    assert not record(function, H200, 2, [0] * 6, [0, 2048, 0]).steps[0].kernel.startswith("rmsnorm_backward_v4")
