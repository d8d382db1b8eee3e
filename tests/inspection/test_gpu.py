"""CUDA and Triton kernels, compiled for named architectures on a machine without a GPU."""

from __future__ import annotations

import importlib.util
from collections import Counter

import pytest

from perfkit.errors import Unavailable
from perfkit.inspection import gpu, kernels, ptx
from perfkit.kernels.cuda.resources import read_resources

PTX = """
.visible .entry kernel_a(.param .u64 p)
{
  ld.param.b64 %rd1, [p];
  ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
  @%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
  ld.global.L1::evict_last.b16 %rs1, [%rd1];
  ld.shared.v2.b32 {%r1, %r2}, [%r9];
  fma.rn.ftz.f32 %f1, %f2, %f3, %f4;
  ex2.approx.ftz.f32 %f1, %f2;
  cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;
  shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;
  st.global.v2.b32 [%rd1], {%r1, %r2};
}
.visible .entry kernel_b(.param .u64 p)
{
  st.global.b8 [%rd1], %rs1;
}
"""


def test_widths_of_accesses_in_ptx():
    text = ptx.entry(PTX, "kernel_a")
    assert "kernel_b" not in text
    assert ptx.accesses(text) == {
        ("load", "global"): Counter({16: 2, 2: 1}),
        ("load", "shared"): Counter({8: 1}),
        ("store", "global"): Counter({8: 1}),
    }
    facts = dict(ptx.summary(text))
    assert facts["global loads a thread"] == "16 B ×2, 2 B ×1"
    assert facts["asynchronous copies"] == "16 B ×1"
    assert facts["instructions"] == "multiply-add 1, exponential, tanh, … 1, shuffle 1"
    assert ptx.accesses(ptx.entry(PTX, "kernel_b")) == {("store", "global"): Counter({1: 1})}


def facts(name, implementation, dtype="fp32", arch="sm_90", sizes=""):
    found = list(kernels.inspect_operation(name, [implementation], dtype, arch, sizes))
    return [(one, dict(one.facts)) for one in found]


@pytest.fixture
def nvrtc():
    from perfkit.kernels.cuda import nvrtc

    try:
        nvrtc.library()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_a_cuda_kernel_on_each_architecture(nvrtc, arch):
    ((naive, slow),) = facts("gelu_forward", "cuda:1", arch=arch)
    ((_, fast),) = facts("gelu_forward", "cuda:2", arch=arch)
    assert naive.title == f"gelu_forward cuda:1 fp32 for {arch}: gelu_forward_v1<T>"
    assert slow["launch"] == "grid 3072, 256 threads a block"
    assert slow["global loads a thread"] == "4 B ×1"
    assert fast["global loads a thread"].startswith("16 B ×") and fast["global stores a thread"].startswith("16 B ×")
    for found in (slow, fast):
        assert found["spills"] == "none" and found["shared memory"].endswith(" B a block")
        assert 8 <= int(found["registers"].split()[0]) <= 255
    assert f".target {arch}" in naive.listing or ".entry" in naive.listing


def test_sizes_change_what_is_launched(nvrtc):
    ((_, aligned),) = facts("gelu_forward", "cuda:2", sizes="N=4096")
    assert aligned["launch"].startswith("grid 4,")


def test_sass_shows_what_the_hardware_loads(nvrtc):
    if gpu.tool("cuobjdump") is None:
        pytest.skip("no cuobjdump on this machine")
    ((_, found),) = facts("gelu_forward", "cuda:2")
    assert "LDG 16 B" in found["SASS accesses"] and "STG 16 B" in found["SASS accesses"]
    assert "FFMA" in found["SASS"]


def test_a_triton_kernel_without_a_gpu():
    """For one architecture after the other in one process: each is compiled again."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    from triton.runtime import driver

    before = driver._active
    for arch, target in (("sm_90", ".target sm_90a"), ("sm_80", ".target sm_80"), ("sm_90", ".target sm_90a")):
        ((one, found),) = facts("gelu_forward", "triton", arch=arch)
        assert one.title.startswith(f"gelu_forward triton:1 fp32 for {arch}: ")
        assert found["global loads a thread"].startswith("16 B ×")
        assert "threads a block" in found["launch"]
        assert target in one.listing
    assert driver._active is before


def test_a_triton_kernel_that_can_add_to_its_outputs():
    """Its launch takes one number more, which says what to add to: `perfkit inspect encoder_backward` failed."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    found = facts("encoder_backward", "triton", sizes="B=1,T=64,C=64,V=128")
    assert [one.title.split(": ")[1] for one, _ in found] == [
        "encoder_backward_pieces_kernel", "encoder_backward_words_kernel", "encoder_backward_wpe_kernel",
    ]  # fmt: skip


def test_a_log_without_kernels_tells_no_resources():
    """As where no assembler is that knows the architecture."""
    assert read_resources("") == {} and read_resources("ptxas fatal : nothing\n") == {}


def test_without_the_tools_the_rest_is_still_told(nvrtc, monkeypatch):
    monkeypatch.setattr(gpu, "tool", lambda name: None)
    ((one, found),) = facts("gelu_forward", "cuda:1")
    assert "SASS" not in found and one.notes == ["No SASS: no cuobjdump here reads this architecture."]
    assert "registers" in found


def test_one_that_cannot_be_inspected_is_a_note_among_several(monkeypatch):
    from perfkit.kernels.cuda import nvrtc

    def missing():
        raise Unavailable("NVRTC is not here.")

    monkeypatch.setattr(nvrtc, "library", missing)
    found = list(kernels.inspect_operation("gelu_forward", ["cuda:1", "cuda:2"], "fp32", "sm_90", ""))
    assert [one.notes for one in found] == [["NVRTC is not here."]] * 2
    with pytest.raises(Unavailable, match="NVRTC is not here"):
        facts("gelu_forward", "cuda:1")
