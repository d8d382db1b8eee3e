"""Every CUDA kernel compiles with the run-time options, without a GPU; what it takes is known.

One architecture and precision here; `make test-full` has three and two.

The host functions say which kernels run: each is recorded for its operation's cases and for GPT-2's sizes.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perfkit.errors import RunFailed
from perfkit.kernels import Implementation, Operation, catalog
from perfkit.kernels.checking import Inputs
from perfkit.kernels.cuda import nvrtc
from perfkit.kernels.cuda.binding import ITEM_SIZES, host_function
from perfkit.kernels.cuda.build import compiled, cubin
from perfkit.kernels.cuda.host import Argument, GpuLimits, Host, record
from perfkit.kernels.cuda.resources import Resources, read_resources

# Multiprocessors and the most shared memory of a block, as NVIDIA's programming guide gives them.
DEVICES = (GpuLimits("sm_80", 108, 163 << 10), GpuLimits("sm_90", 132, 227 << 10), GpuLimits("sm_100", 148, 227 << 10))
FULL = pytest.mark.full
TARGETS = [
    pytest.param(d, dtype, marks=[] if (d.arch, dtype) == ("sm_90", "bf16") else FULL, id=f"{d.arch}-{dtype}")
    for d in DEVICES
    for dtype in ("fp32", "bf16")
]
targets = pytest.mark.parametrize(("device", "dtype"), TARGETS)
REGISTERS = 65536  # of a multiprocessor, on all three
THREADS = 1024  # the most of a block

OPERATIONS = [o for f in catalog() for o in f.operations if any(i.language == "cuda" for i in o.implementations)]

# The scalars of GPT-2's calls (B=8, T=1024), by operation; the cases of the catalog are small.
B, T, C, NH, V = 8, 1024, 768, 12, 50257
GPT2: dict[str, tuple[int | float, ...]] = {
    "adamw_step": (7_077_888, *[0.1] * 8),
    "bias_gradient": (B * T, 4 * C),
    "bias_relu_backward": (4 * B * T * C,),
    "bias_relu_forward": (B * T, 4 * C),
    "causal_softmax_backward": (B * NH, T, T, 0.1),
    "causal_softmax_forward": (B * NH, T, T, 0.1),
    "classifier": (B * T, V, 50304, -1, 0.1),
    "cross_entropy_backward": (B * T, V, 50304, -1),
    "cross_entropy_forward": (B * T, V, 50304, -1),
    "decode_attention": (1, NH, NH // 3, C // NH, 4096, 0.1),
    "decode_head": (1, C, V, 1e-5),
    "decode_qkv": (1, C, NH, NH // 3, C // NH // 2, T, T, 1e-5),
    "decode_sum": (1, 4 * C, C),
    "decode_swiglu": (4, C, 4 * C, 1e-5),
    "decode_token": (1, V),
    "embedding_backward": (B * T, C, V),
    "embedding_forward": (B * T, C, V),
    "encoder_backward": (B, T, C, V, T),
    "encoder_forward": (B, T, C, V),
    "fp8_amax": (4 * B * T * C,),
    "fp8_cast": (B * T, 4 * C),
    "fp8_gradient_cast": (B * T, 4 * C),
    "flash_attention_backward": (B * NH, 1, T, C // NH, 0.1),
    "flash_attention_forward": (B * NH, 1, T, C // NH, 0.1),
    "gelu_amax_forward": (4 * B * T * C,),
    "gelu_backward": (4 * B * T * C,),
    "gelu_bias_amax_backward": (B * T, 4 * C),
    "gelu_bias_backward": (B * T, 4 * C),
    "gelu_forward": (4 * B * T * C,),
    "gemv": (1, C, V),
    "gemv_bias": (B, C, 3 * C),
    "global_norm": (124_439_808,),
    "layernorm_backward": (B * T, C),
    "layernorm_forward": (B * T, C, 1e-5),
    "merge_heads_backward": (B, T, NH, C // NH),
    "merge_heads_forward": (B, T, NH, C // NH),
    "residual_forward": (B * T * C,),
    "residual_layernorm_forward": (B * T, C, 1e-5),
    "residual_rmsnorm_forward": (B * T, C, 1e-5),
    "rmsnorm_backward": (B * T, 2048),  # Llama 1b's: version 4 takes no shorter rows
    "rmsnorm_forward": (B * T, C, 1e-5),
    "rotary_backward": (B * T, T, NH, NH // 3, C // NH // 2),
    "rotary_forward": (B * T, T, NH, NH // 3, C // NH // 2),
    "softmax_backward": (B * T, V),
    "softmax_forward": (B * T, V),
    "split_heads_backward": (B, T, NH, C // NH),
    "split_heads_bias_backward": (B, T, NH, C // NH),
    "split_heads_forward": (B, T, NH, C // NH),
    "swiglu_amax_backward": (B * T * 4 * C,),
    "swiglu_amax_forward": (B * T * 4 * C,),
    "swiglu_backward": (B * T * 4 * C,),
    "swiglu_forward": (B * T * 4 * C,),
    **{
        f"multiply_add_{a}_{d}": (B * T, 4 * C, 0.1)
        for a in ("relu", "sigmoid", "gelu", "silu")
        for d in ("forward", "backward")
    },
}


def tensors_of(operation: Operation) -> int:
    return len(operation.signature.tensors) + len(operation.signature.outputs)


def recorded(operation: Operation, i: Implementation, dtype: str, device: GpuLimits) -> Iterator[Host]:
    """Return the launches of a host function for the smallest case with tensors off 16 bytes, then for GPT-2's sizes.

    One that can add to its outputs once overwrites all, and then adds to all.
    """
    function = host_function(operation.source_path(i), i.symbol)
    smallest = operation.scalars(*operation.inputs(Inputs(dtype, 0), **operation.cases[0]))
    every = (1 << len(operation.signature.outputs)) - 1
    for scalars, offset in ((smallest, ITEM_SIZES[dtype]), (GPT2[operation.name], 0)):
        for mask in (0, every) if i.accumulates else (0,):
            offsets = [offset] * tensors_of(operation)
            yield record(function, device, ITEM_SIZES[dtype], offsets, i.numbers(scalars, mask))


def kernels_by_source(dtype: str, device: GpuLimits) -> dict[Path, set[str]]:
    """Every kernel that some call launches, by source."""
    found: dict[Path, set[str]] = {}
    for operation in OPERATIONS:
        for i in operation.implementations:
            if i.language == "cuda" and dtype in i.dtypes:
                kernels = found.setdefault(operation.folder / i.source, set())
                for host in recorded(operation, i, dtype, device):
                    kernels.update(step.kernel for step in host.steps)
    return found


@functools.cache
def resources(dtype: str, device: GpuLimits) -> dict[str, Resources]:
    """Resources by kernel, kept in the cache. NVRTC lets go of Python's lock: as many at a time as cores."""
    tasks = [
        (source, dtype, device.arch, sorted(kernels)) for source, kernels in kernels_by_source(dtype, device).items()
    ]
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        built = list(pool.map(lambda task: cubin(*task), tasks))
    return {kernel: taken for module in built for kernel, taken in module.resources.items()}


def test_gpt2_sizes_are_given_for_every_operation() -> None:
    assert set(GPT2) == {operation.name for operation in OPERATIONS}


def test_every_source_has_kernels_that_run() -> None:
    sources = {path for family in catalog() for path in family.folder.glob("*.cu")}
    assert set(kernels_by_source("bf16", DEVICES[1])) == sources


@pytest.mark.slow
@targets
def test_no_kernel_spills_or_uses_local_memory(device: GpuLimits, dtype: str) -> None:
    found = resources(dtype, device)
    assert len(found) > 50
    bad = {k: r for k, r in found.items() if r.local or r.spill_stores or r.spill_loads}
    assert not bad


@pytest.mark.slow
def test_no_product_of_a_warpgroup_waits_for_the_one_before_it() -> None:
    """The assembler makes them wait, and only says so, where it cannot tell that their registers are left alone."""
    (source,) = (path for path in kernels_by_source("bf16", DEVICES[1]) if path.name == "flash_attention.cu")
    log = compiled(source, "bf16", "sm_90", sorted(kernels_by_source("bf16", DEVICES[1])[source])).log
    assert "flash_forward" in log and "wgmma" not in log


@pytest.mark.slow
@targets
def test_every_block_fits_a_multiprocessor(device: GpuLimits, dtype: str) -> None:
    """Registers are handed out to warps in units of 256; the launch fails where they or shared memory do not do."""
    for operation in OPERATIONS:
        for i in operation.implementations:
            if i.language != "cuda" or dtype not in i.dtypes:
                continue
            for host in recorded(operation, i, dtype, device):
                for step in host.steps:
                    taken = resources(dtype, device)[step.kernel]
                    warps = -(-step.block // 32)
                    assert step.block <= THREADS
                    assert warps * -(-taken.registers * 32 // 256) * 256 <= REGISTERS, step
                    assert step.shared + taken.shared <= device.shared, step


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [pytest.param("fp32", marks=FULL), "bf16"])
def test_the_fastest_versions_keep_several_warps_on_a_multiprocessor(dtype: str) -> None:
    """At GPT-2's sizes: a memory-bound kernel needs loads under way, eight warps with several each at least."""
    for operation in OPERATIONS:
        found = [i for i in operation.implementations if i.language == "cuda" and dtype in i.dtypes]
        if not found:
            continue
        fastest = max(found, key=lambda i: i.version)
        *_, host = recorded(operation, fastest, dtype, DEVICES[1])
        step = max(host.steps, key=lambda s: s.grid[0] * s.grid[1] * s.grid[2] * s.block)
        taken = resources(dtype, DEVICES[1])[step.kernel]
        warps = -(-step.block // 32)
        blocks = REGISTERS // (warps * -(-taken.registers * 32 // 256) * 256)
        if step.shared:
            blocks = min(blocks, (228 << 10) // (step.shared + taken.shared + 1024))
        assert blocks * warps >= 8, (step.kernel, taken)


def within_limits(host: Host) -> bool:
    return all(min(step.grid) > 0 and step.grid[1] < 65536 and step.grid[2] < 65536 for step in host.steps)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_launches_pass_what_the_kernel_takes(operation: Operation) -> None:
    """Arguments are tensors, floats or scratch of the call, or integers that fit 64 bits; grids are within limits."""
    for i in operation.implementations:
        if i.language == "cuda":
            for host in recorded(operation, i, "bf16", DEVICES[1]):
                assert host.steps or host.instead
                assert within_limits(host)
                places = host.values + len(host.scratches)
                for step in host.steps:
                    assert step.kernel.startswith(tuple("abcdefghijklmnopqrstuvwxyz"))
                    for argument in step.arguments:
                        assert (argument.place < places) if isinstance(argument, Argument) else abs(argument) < 2**63


def test_an_empty_call_launches_nothing_over_it() -> None:
    """Rows or elements may be 0: a grid of 0 is not launched."""
    gelu = next(o for o in OPERATIONS if o.name == "gelu_forward")
    for version in (1, 2):
        function = host_function(gelu.folder / "gelu.cu", f"gelu_forward_v{version}")
        assert record(function, DEVICES[1], 4, [0, 0], (0,)).steps == []


# ---- building -------------------------------------------------------------------------------------------------------

SOURCE = """#include <perfkit/device.cuh>
template <class T> __global__ void twice(const T *x, T *y, int64 n) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) put(y + i, 2.0f * get(x + i));
}
"""


def write(folder: Path, text: str) -> Path:
    source = folder / "twice.cu"
    source.write_text(text)
    return source


def test_a_cubin_is_built_once_and_again_when_anything_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    source = write(tmp_path, SOURCE)
    first = cubin(source, "fp32", "sm_90", ["twice<T>"])
    built = first.path.stat().st_mtime_ns
    assert first.path.read_bytes()[:4] == b"\x7fELF"
    assert first.resources["twice<T>"].registers > 0
    again = cubin(source, "fp32", "sm_90", ["twice<T>"])
    assert again == first and again.path.stat().st_mtime_ns == built
    others = {cubin(source, "bf16", "sm_90", ["twice<T>"]).path, cubin(source, "fp32", "sm_80", ["twice<T>"]).path}
    (tmp_path / "shared.cuh").write_text("/* a header beside it */\n")
    others.add(cubin(source, "fp32", "sm_90", ["twice<T>"]).path)
    source.write_text(SOURCE.replace("2.0f", "3.0f"))
    others.add(cubin(source, "fp32", "sm_90", ["twice<T>"]).path)
    assert len(others | {first.path}) == 5
    assert {path.suffix for path in first.path.parent.iterdir()} == {".cubin", ".json"}


def test_a_broken_source_gives_the_compilers_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    source = write(tmp_path, SOURCE.replace("2.0f", "two"))
    with pytest.raises(RunFailed) as caught:
        cubin(source, "fp32", "sm_90", ["twice<T>"])
    assert f"NVRTC could not compile {source}" in caught.value.message
    assert 'twice.cu(4): error: identifier "two" is undefined' in caught.value.message
    assert not list(tmp_path.glob("cache/kernels/*"))


def test_a_kernel_that_is_not_in_the_source_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(RunFailed, match="thrice"):
        cubin(write(tmp_path, SOURCE), "fp32", "sm_90", ["thrice<T>"])


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(RunFailed, match=r"could not be written: .*Set PERFKIT_CACHE"):
        cubin(write(tmp_path, SOURCE), "fp32", "sm_90", ["twice<T>"])


def test_spills_and_local_memory_are_read_from_the_log(tmp_path: Path) -> None:
    """An array with an index known at run time only goes to local memory."""
    text = """extern "C" __global__ void wanders(float *x, const int *at) {
    float held[64];
    for (int i = 0; i < 64; i++) held[i] = x[i];
    for (int i = 0; i < 64; i++) held[at[i]] *= held[at[i + 1]];
    for (int i = 0; i < 64; i++) x[i] = held[i];
}
"""
    done = nvrtc.compile_source(text, "wanders.cu", {}, ["-arch=sm_90", "--ptxas-options=-v"], ["wanders"])
    assert read_resources(done.log)["wanders"].local >= 256


def test_the_version_is_the_installed_one() -> None:
    assert nvrtc.version() >= (12, 0)


def test_what_is_missing_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from perfkit.errors import Unavailable
    from perfkit.kernels.cuda import availability

    nvrtc.library.cache_clear()
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(["libnot-there.so"]))
    try:
        with pytest.raises(Unavailable, match=r"NVRTC, which compiles CUDA kernels, is not on this machine\. Install"):
            nvrtc.library()
    finally:
        nvrtc.library.cache_clear()
    monkeypatch.setattr(availability.importlib.util, "find_spec", lambda name: None)
    assert "CuPy is not installed" in (availability.unavailable() or "")


def test_a_missing_host_function_is_named() -> None:
    gelu: Any = next(o for o in OPERATIONS if o.name == "gelu_forward")
    with pytest.raises(RunFailed, match=r"gelu_cuda\.py defines no host function called gelu_v9"):
        host_function(gelu.folder / "gelu.cu", "gelu_v9")


def test_the_example_of_the_page_compiles_and_launches(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "gpu-kernels.md").read_text()
    source = tmp_path / "square.cu"
    source.write_text(re.findall(r"```cuda\n(.*?)```", page, re.S)[0])
    (tmp_path / "square_cuda.py").write_text(re.findall(r"```python\n(.*?)```", page, re.S)[0])
    for version, offset, kernel in ((1, 0, "square_v1<T>"), (2, 0, "square_v2<T, 8>"), (2, 2, "square_v2<T, 1>")):
        host = record(host_function(source, f"square_forward_v{version}"), DEVICES[1], 2, [offset] * 2, (1000,))
        assert [(step.kernel, step.arguments[2]) for step in host.steps] == [(kernel, 1000)]
        done = compiled(source, "bf16", "sm_90", [kernel])
        assert read_resources(done.log)[done.names[kernel]].local == 0
